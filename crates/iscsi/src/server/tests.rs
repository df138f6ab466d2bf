//! The serving end, driven by hand.
