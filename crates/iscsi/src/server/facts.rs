//! What the target says of itself in SCSI's words: vendor, product, and its ports.
//!
//! A target has one port in each group of listeners; group, port and portal group have one number.
//!
//! Spec: SPC-4, "Standard INQUIRY data", "Device Identification VPD page"; RFC 7143, 4.2.7.1 (the
//! names of an iSCSI port).

use reservation::PathGroup;
use reservation::paths::Path;
use scsi::{AT_PORT, Facts, TargetPort};
use wire::scsi::{ProtocolId, Sense};

/// PRODUCT IDENTIFICATION.
const PRODUCT: &str = "VOLUME";
/// PRODUCT REVISION LEVEL: the version up to its second number.
const REVISION: &str =
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
/// VERSION DESCRIPTOR: iSCSI, no version claimed.
const VERSION: u16 = 0x0960;

/// Runs `work` with what the target of this name says to a host that came by this group and may use
/// these LUNs; `groups` are all there are.
pub(super) fn with<R>(
    target: &str,
    group: PathGroup,
    groups: &[(PathGroup, Path)],
    luns: &[u16],
    pending: Option<Sense>,
    work: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    let number = group.number();
    let port_name = format!("{target}{AT_PORT}{number:04x}");
    work(&Facts {
        vendor: crate::target::VENDOR,
        product: PRODUCT,
        revision: REVISION,
        luns,
        port: TargetPort {
            protocol: ProtocolId::ISCSI,
            version: VERSION,
            device_name: target,
            port_name: &port_name,
            relative_id: number,
            group: number,
        },
        groups,
        pending,
    })
}
