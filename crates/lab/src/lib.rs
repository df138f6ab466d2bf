//! The room `lab`.
#![forbid(unsafe_code)]
