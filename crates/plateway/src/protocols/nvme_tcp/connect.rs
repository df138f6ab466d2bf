//! What is typed on a client to use a namespace over NVMe/TCP.

use super::config::NamespaceConfig;
use crate::protocols::connect::{ClientKind, Guide, Reached, quoted, who};

impl NamespaceConfig {
    pub(super) fn guide_for(&self, client: ClientKind, reached: &Reached<'_>) -> Guide {
        let Some(at) = reached.at else {
            return Guide::instead("there is no listener for NVMe/TCP: add one, [[listener]] nvme");
        };
        let (host, port) = (&at.host, at.tcp_port);
        let subsystem = quoted(self.subsystem.as_str());
        let device = format!("/dev/disk/by-id/nvme-uuid.{}", reached.uuid);
        let mut linux = Vec::from_iter(who(&self.hosts, "its name is in /etc/nvme/hostnqn"));
        linux.extend([
            "modprobe nvme-tcp".to_owned(),
            format!("nvme connect -t tcp -a {host} -s {port} -n {subsystem}"),
            format!("# its disk: {device}"),
        ]);
        match client {
            ClientKind::Linux => Guide::typed(linux),
            ClientKind::Proxmox => Guide::shared_by_nodes(linux, &device),
            ClientKind::Qemu => Guide::through_the_host("NVMe/TCP", &device),
            ClientKind::Esxi => {
                let its_name = "its name is shown by: esxcli nvme info get";
                let mut lines = Vec::from_iter(who(&self.hosts, its_name));
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
}
