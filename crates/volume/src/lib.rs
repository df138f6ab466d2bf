//! The room `volume`.
#![forbid(unsafe_code)]
