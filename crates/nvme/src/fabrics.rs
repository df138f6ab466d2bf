//! The properties of a controller: what CAP, VS and CRTO say, and which values of CC are accepted.
//! Pure tables and checks.
//!
//! Spec: NVMe base, "Controller Properties".

use wire::nvme::fabrics::{Capabilities, Configuration, Version};

use crate::limits::QUEUE_DEPTH_MAX;

/// The version of the base specification that controllers follow. From 2.0 on hosts look at
/// Identify CNS 08h, which is answered.
pub(crate) const VERSION: Version = Version::V2_0;
/// CAP.TO and CRTO.CRWMT, in 500 ms (CRIMT is 0, no mode is ready before the media are): a reset is
/// answered once the I/O queues have drained, so hosts are asked to be patient for 30 s.
pub(crate) const READY_TIMEOUT: u8 = 60;
/// CC.IOSQES: entries of 64 bytes.
const IOSQES: u32 = 6;
/// CC.IOCQES: entries of 16 bytes.
const IOCQES: u32 = 4;
/// CC.CSS: the NVM command set.
const CSS_NVM: u32 = 0;
/// CC.CSS: every I/O command set there is.
const CSS_ALL: u32 = 6;

/// CAP.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities(0)
        .with_mqes(u64::from(QUEUE_DEPTH_MAX) - 1)
        .with_cqr(true)
        .with_timeout(u64::from(READY_TIMEOUT))
        .with_css_nvm(true)
        .with_css_io_sets(true)
        .with_crms(1)
}

/// Whether a controller can be enabled with this CC. A discovery controller has no I/O queues, so
/// their entry sizes are not looked at.
pub(crate) fn configuration_is_valid(cc: Configuration, discovery: bool) -> bool {
    let entries = discovery || (cc.iosqes() == IOSQES && cc.iocqes() == IOCQES);
    let sets = cc.css() == CSS_NVM || cc.css() == CSS_ALL;
    // Pages of 4 KiB (CAP.MPSMAX is 0), round robin arbitration, ready with media.
    entries && sets && cc.mps() == 0 && cc.ams() == 0 && !cc.crime()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux writes: EN, IOSQES 6, IOCQES 4, CSS NVM or all.
    #[test]
    fn the_configurations_of_linux_are_accepted() {
        assert!(configuration_is_valid(Configuration(0x0046_0001), false));
        assert!(configuration_is_valid(Configuration(0x0046_0061), false));
    }

    #[test]
    fn entry_sizes_pages_sets_and_arbitration_are_checked() {
        let good = Configuration(0x0046_0001);
        assert!(!configuration_is_valid(good.with_iosqes(7), false));
        assert!(!configuration_is_valid(good.with_iocqes(5), false));
        assert!(!configuration_is_valid(good.with_mps(1), false));
        assert!(!configuration_is_valid(good.with_ams(1), false));
        assert!(!configuration_is_valid(good.with_css(1), false));
        assert!(configuration_is_valid(Configuration(1), true), "discovery has no I/O queues");
    }
}
