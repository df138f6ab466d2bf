//! What is typed on a client to use a target of AoE. It is reached on the Ethernet of its links
//! alone.

use super::config::TargetConfig;
use crate::protocols::connect::{ClientKind, Guide, who};

impl TargetConfig {
    pub(super) fn guide_for(&self, client: ClientKind) -> Guide {
        let address = self.address;
        let device = format!("/dev/etherd/e{address}");
        let links = self.links.join(", ");
        let mut linux = vec![format!(
            "# on the Ethernet of {links}, with the package aoetools; MTU 9000 where all of it has it"
        )];
        linux.extend(who(&self.hosts, "ip link shows its address"));
        linux.extend([
            "modprobe aoe".to_owned(),
            "aoe-discover".to_owned(),
            format!("# its disk: {device}"),
        ]);
        match client {
            ClientKind::Linux => Guide::typed(linux),
            ClientKind::Proxmox => Guide::shared_by_nodes(linux, &device),
            ClientKind::Qemu => Guide::through_the_host("AoE", &device),
            ClientKind::Ipxe => {
                Guide::typed(vec!["ifopen net0".to_owned(), format!("sanboot aoe:e{address}")])
            }
            ClientKind::Windows | ClientKind::Esxi => Guide::instead(
                "we know of no initiator for AoE that is kept for it: export the volume over iSCSI",
            ),
        }
    }
}
