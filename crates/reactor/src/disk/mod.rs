//! Disks: what takes requests at the very bottom.
pub mod null;
pub mod ram;
