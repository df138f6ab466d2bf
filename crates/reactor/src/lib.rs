//! The room `reactor`.

pub mod disk;
pub mod memory;
