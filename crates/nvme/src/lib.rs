//! The room `nvme`.
#![forbid(unsafe_code)]
