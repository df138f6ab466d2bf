//! The room `shard`.
#![forbid(unsafe_code)]
