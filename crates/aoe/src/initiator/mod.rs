//! initiator
/// x
#[derive(Debug)]
pub struct Initiator;
