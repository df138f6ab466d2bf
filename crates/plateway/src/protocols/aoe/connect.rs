//! What is typed on a client to use a target of AoE. It is reached on the Ethernet of its links
//! alone.

use super::config::TargetConfig;
use crate::config::export::Hosts;
use crate::protocols::connect::{ClientKind, Guide};

impl TargetConfig {
    pub(super) fn guide_for(&self, client: ClientKind) -> Guide {
        let address = self.address;
        let device = format!("/dev/etherd/e{address}");
        let links = self.links.join(", ");
        let mut linux = vec![format!(
            "# on the Ethernet of {links}, with the package aoetools; MTU 9000 where all of it has it"
        )];
        if let Hosts::List(_) = &self.hosts {
            linux.push(format!("# the interface is let in as one of: {}", self.hosts));
        }
        linux.extend([
            "modprobe aoe".to_owned(),
            "aoe-discover".to_owned(),
            format!("# its disk: {device}"),
        ]);
        match client {
            ClientKind::Linux => Guide::typed(linux),
            ClientKind::Proxmox => {
                linux.insert(0, "# on each node; once, on one of them, the last two:".to_owned());
                linux.push(format!("vgcreate NAME {device}"));
                linux.push("pvesm add lvm NAME --vgname NAME --shared 1".to_owned());
                Guide::typed(linux)
            }
            ClientKind::Qemu => Guide::instead(format!(
                "QEMU has no initiator for AoE: connect the Linux host under it (--for linux), and give it -drive file={device},format=raw,if=virtio,cache=none"
            )),
            ClientKind::Ipxe => {
                Guide::typed(vec!["ifopen net0".to_owned(), format!("sanboot aoe:e{address}")])
            }
            ClientKind::Windows | ClientKind::Esxi => Guide::instead(
                "we know of no initiator for AoE that is kept for it: export the volume over iSCSI",
            ),
        }
    }
}
