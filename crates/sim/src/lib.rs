//! The room `sim`.
#![forbid(unsafe_code)]
