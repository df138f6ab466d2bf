//! What the target says of itself in SCSI's words: vendor, product, and its one port.
//!
//! Spec: SPC-4, "Standard INQUIRY data", "Device Identification VPD page"; RFC 7143, 4.2.7.1 (the
//! names of an iSCSI port).

use scsi::{Facts, TargetPort};
use wire::scsi::{ProtocolId, Sense};

use crate::target::PORTAL_GROUP;

/// VENDOR IDENTIFICATION of every unit; our initiators know our targets by it.
pub(crate) const VENDOR: &str = "PLATEWAY";
/// PRODUCT IDENTIFICATION.
const PRODUCT: &str = "VOLUME";
/// PRODUCT REVISION LEVEL: the version up to its second number.
const REVISION: &str =
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
/// RELATIVE TARGET PORT IDENTIFIER of a target's one port.
pub(super) const RELATIVE_PORT: u16 = 1;
/// VERSION DESCRIPTOR: iSCSI, no version claimed.
const VERSION: u16 = 0x0960;

/// Runs `work` with what the target of this name says to a host that may use these LUNs.
pub(super) fn with<R>(
    target: &str,
    luns: &[u16],
    pending: Option<Sense>,
    work: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    let port_name = format!("{target},t,0x{PORTAL_GROUP:04x}");
    work(&Facts {
        vendor: VENDOR,
        product: PRODUCT,
        revision: REVISION,
        luns,
        port: TargetPort {
            protocol: ProtocolId::ISCSI,
            version: VERSION,
            device_name: target,
            port_name: &port_name,
            relative_id: RELATIVE_PORT,
            group: PORTAL_GROUP,
        },
        pending,
    })
}
