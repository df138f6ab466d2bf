//! The room `reactor`.
