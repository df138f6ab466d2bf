//! What is typed on a client to use a namespace over NVMe/TCP.

use super::config::NamespaceConfig;
use crate::config::export::Hosts;
use crate::protocols::connect::{ClientKind, Guide, Reached};

impl NamespaceConfig {
    pub(super) fn guide_for(&self, client: ClientKind, reached: &Reached<'_>) -> Guide {
        let Some(at) = reached.at else {
            return Guide::instead("there is no listener for NVMe/TCP: add one, [[listener]] nvme");
        };
        let (host, port, subsystem) = (&at.host, at.tcp_port, &self.subsystem);
        let device = format!("/dev/disk/by-id/nvme-uuid.{}", reached.uuid);
        let mut linux = self.who("its name is in /etc/nvme/hostnqn");
        linux.extend([
            "modprobe nvme-tcp".to_owned(),
            format!("nvme connect -t tcp -a {host} -s {port} -n {subsystem}"),
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
                "QEMU has no initiator for NVMe/TCP: connect the Linux host under it (--for linux), and give it -drive file={device},format=raw,if=virtio,cache=none"
            )),
            ClientKind::Esxi => {
                let mut lines = self.who("its name is shown by: esxcli nvme info get");
                lines.extend([
                    "esxcli nvme fabrics enable --protocol TCP --device vmnicN".to_owned(),
                    "esxcli nvme adapter list".to_owned(),
                    format!(
                        "esxcli nvme fabrics connect -a vmhbaN -i {host} -p {port} -s {subsystem}"
                    ),
                ]);
                Guide::typed(lines)
            }
            ClientKind::Windows => Guide::instead(
                "we know of no initiator for NVMe/TCP that comes with Windows: export the volume over iSCSI",
            ),
            ClientKind::Ipxe => {
                Guide::instead("iPXE has no NVMe/TCP: export the volume over iSCSI or AoE")
            }
        }
    }

    /// A line where hosts are chosen by name.
    fn who(&self, where_it_is: &str) -> Vec<String> {
        match &self.hosts {
            Hosts::Any => Vec::new(),
            list => vec![format!("# the host is let in as one of: {list}; {where_it_is}")],
        }
    }
}
