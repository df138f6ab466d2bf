//! What is typed on a client to use a logical unit over iSCSI. Secrets are `SECRET`: they are the
//! reader's to fill in.

use super::config::UnitConfig;
use crate::config::address::HostPort;
use crate::config::export::Hosts;
use crate::protocols::connect::{ClientKind, Guide, Reached, quoted, who};

impl UnitConfig {
    pub(super) fn guide_for(&self, client: ClientKind, reached: &Reached<'_>) -> Guide {
        let Some(at) = reached.at else {
            return Guide::instead("there is no listener for iSCSI: add one, [[listener]] iscsi");
        };
        Guide::typed(match client {
            ClientKind::Linux => self.linux(at),
            ClientKind::Qemu => self.qemu(at),
            ClientKind::Windows => self.windows(at),
            ClientKind::Esxi => self.esxi(at),
            ClientKind::Proxmox => self.proxmox(at),
            ClientKind::Ipxe => self.ipxe(at),
        })
    }

    /// As whom a host logs in, as one word of a shell.
    fn user(&self) -> Option<String> {
        self.chap.as_ref().map(|chap| quoted(&chap.user.user))
    }

    /// What open-iscsi is told, in order.
    pub(super) fn login(&self, at: &HostPort) -> Vec<String> {
        let node = format!("iscsiadm -m node -T {} -p {at}", self.target);
        let set =
            |(name, value)| format!("{node} -o update -n node.session.auth.{name} -v {value}");
        let mut lines = vec![format!("iscsiadm -m discovery -t sendtargets -p {at}")];
        if let Some(user) = self.user() {
            lines.extend(
                [("authmethod", "CHAP"), ("username", &*user), ("password", "SECRET")].map(set),
            );
        }
        lines.push(format!("{node} --login"));
        lines
    }

    fn linux(&self, at: &HostPort) -> Vec<String> {
        let mut lines = vec!["# with the package open-iscsi".to_owned()];
        lines.extend(who(&self.hosts, "its name is in /etc/iscsi/initiatorname.iscsi"));
        lines.extend(self.login(at));
        let (target, lun) = (&self.target, self.lun);
        lines.push(format!("# its disk: /dev/disk/by-path/ip-{at}-iscsi-{target}-lun-{lun}"));
        lines
    }

    fn qemu(&self, at: &HostPort) -> Vec<String> {
        let url = format!("iscsi://{at}/{}/{}", self.target, self.lun);
        let mut lines = Vec::new();
        if let Some(user) = self.user() {
            lines.push(format!("export LIBISCSI_CHAP_USERNAME={user}"));
            lines.push("export LIBISCSI_CHAP_PASSWORD=SECRET".to_owned());
        }
        let as_whom = match &self.hosts {
            Hosts::List(list) if !list.is_empty() => {
                format!(" -iscsi initiator-name={}", list[0])
            }
            _ => String::new(),
        };
        lines.extend(who(&self.hosts, "QEMU says its name by -iscsi initiator-name"));
        lines.push(format!("qemu-img info {url}"));
        lines.push(format!("qemu-system-x86_64{as_whom} -drive file={url},format=raw,if=virtio"));
        lines
    }

    fn windows(&self, at: &HostPort) -> Vec<String> {
        let HostPort { host, tcp_port } = at;
        let portal = format!("-TargetPortalAddress {host} -TargetPortalPortNumber {tcp_port}");
        let chap = self.chap.as_ref().map_or_else(String::new, |chap| {
            // PowerShell has another way to write a quote in quotes.
            let user = format!("'{}'", chap.user.user.replace('\'', "''"));
            format!(" -AuthenticationType ONEWAYCHAP -ChapUsername {user} -ChapSecret SECRET")
        });
        let mut lines = vec!["# in PowerShell, as an administrator".to_owned()];
        lines.extend(who(&self.hosts, "its name is shown by: (Get-InitiatorPort).NodeAddress"));
        lines.extend([
            "Set-Service msiscsi -StartupType Automatic; Start-Service msiscsi".to_owned(),
            format!("New-IscsiTargetPortal {portal}"),
            format!(
                "Connect-IscsiTarget -NodeAddress {} {portal} -IsPersistent $true{chap}",
                self.target
            ),
            "Get-Disk | Where-Object BusType -eq iSCSI".to_owned(),
            "# for several paths use MPIO: a session has one connection here (no MC/S)".to_owned(),
        ]);
        lines
    }

    fn esxi(&self, at: &HostPort) -> Vec<String> {
        let its_name = "its name is shown by: esxcli iscsi adapter get -A vmhbaN";
        let mut lines = Vec::from_iter(who(&self.hosts, its_name));
        lines.extend([
            "esxcli iscsi software set --enabled=true".to_owned(),
            "esxcli iscsi adapter list".to_owned(),
        ]);
        if let Some(user) = self.user() {
            lines.push(format!(
                "esxcli iscsi adapter auth chap set --adapter=vmhbaN --direction=uni --level=required --authname={user} --secret=SECRET"
            ));
        }
        lines.extend([
            format!(
                "esxcli iscsi adapter discovery sendtarget add --adapter=vmhbaN --address={at}"
            ),
            "esxcli storage core adapter rescan --adapter=vmhbaN".to_owned(),
        ]);
        lines
    }

    fn proxmox(&self, at: &HostPort) -> Vec<String> {
        let its_name = "a node's name is in /etc/iscsi/initiatorname.iscsi";
        let mut lines = Vec::from_iter(who(&self.hosts, its_name));
        if self.chap.is_some() {
            lines.push("# Proxmox has no place for a secret: on each node first".to_owned());
            lines.extend(self.login(at));
        }
        lines.push("# in a shell of one node; NAME is what the storage is to be called".to_owned());
        lines.push(format!(
            "pvesm add iscsi NAME --portal {at} --target {} --content images",
            self.target
        ));
        lines
    }

    fn ipxe(&self, at: &HostPort) -> Vec<String> {
        let HostPort { host, tcp_port } = at;
        let mut lines = Vec::new();
        if let Hosts::List(list) = &self.hosts
            && let Some(first) = list.first()
        {
            lines.push(format!("set initiator-iqn {first}"));
        }
        if let Some(user) = self.user() {
            lines.push(format!("set username {user}"));
            lines.push("set password SECRET".to_owned());
        }
        lines.push("ifconf net0".to_owned());
        // LUNs are hexadecimal there.
        lines.push(format!("sanboot iscsi:{host}::{tcp_port}:{:x}:{}", self.lun, self.target));
        lines
    }
}
