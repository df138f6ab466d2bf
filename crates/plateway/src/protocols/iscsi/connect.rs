//! What is typed on a client to use a logical unit over iSCSI. Secrets are `SECRET`: they are the
//! reader's to fill in. As whom a host logs in is its own `iscsi_chap`, or its target's `chap`; as whom it
//! asks for targets is the listener's.

use wire::iscsi::IscsiName;
use wire::scsi::Lun;

use super::config::UnitConfig;
use crate::config::address::HostPort;
use crate::config::export::Hosts;
use crate::protocols::connect::{ClientKind, Guide, Reached, quoted, who};
use crate::protocols::host::HostConfig;

impl UnitConfig {
    pub(super) fn guide_for(&self, client: ClientKind, reached: &Reached<'_>) -> Guide {
        let Some(at) = reached.at else {
            return Guide::instead("there is no listener for iSCSI: add one, [[listener]] iscsi");
        };
        let way = Way { unit: self, at, discovery: reached.discovery, hosts: reached.hosts };
        let mut lines = way.own_proofs();
        lines.extend(match client {
            ClientKind::Linux => way.linux(),
            ClientKind::Qemu => way.qemu(),
            ClientKind::Windows => way.windows(),
            ClientKind::Esxi => way.esxi(),
            ClientKind::Proxmox => way.proxmox(),
            ClientKind::Ipxe => way.ipxe(),
        });
        Guide::typed(lines)
    }

    /// What open-iscsi is told by a host without a name, in order.
    pub(super) fn login(&self, at: &HostPort) -> Vec<String> {
        Way { unit: self, at, discovery: None, hosts: &[] }.login()
    }
}

/// A logical unit by one listener.
struct Way<'a> {
    unit: &'a UnitConfig,
    at: &'a HostPort,
    /// As whom hosts ask it for targets.
    discovery: Option<&'a str>,
    /// The hosts that have names.
    hosts: &'a [HostConfig],
}

/// What open-iscsi is told of a proof: CHAP, by these keys of a record.
fn proof(record: &str, key: &str, user: &str) -> Vec<String> {
    let set = |(name, value)| format!("{record} -o update -n {key}.auth.{name} -v {value}");
    [("authmethod", "CHAP"), ("username", user), ("password", "SECRET")].map(set).to_vec()
}

impl Way<'_> {
    /// The host that is shown: the first that is named.
    fn host(&self) -> Option<&IscsiName> {
        match &self.unit.hosts {
            Hosts::Any => None,
            Hosts::List(list) => list.first(),
        }
    }

    /// As whom it logs in.
    fn plain_user(&self) -> Option<&str> {
        let of_host = |name: &IscsiName| {
            let host = self.hosts.iter().find(|host| host.iscsi.contains(name))?;
            host.chap.as_ref()
        };
        let chap = self.host().and_then(of_host).or(self.unit.chap.as_ref())?;
        Some(&chap.user.user)
    }

    /// The same as one word of a shell.
    fn user(&self) -> Option<String> {
        self.plain_user().map(quoted)
    }

    /// Which hosts prove who they are by secrets of their own.
    fn own_proofs(&self) -> Vec<String> {
        let is_let_in =
            |host: &&HostConfig| host.iscsi.iter().any(|name| self.unit.hosts.allow(name));
        let own = self.hosts.iter().filter(is_let_in).filter_map(|host| {
            let user = &host.chap.as_ref()?.user.user;
            Some(format!("# {} logs in as {user}, with the secret of its own", host.name))
        });
        own.collect()
    }

    /// LOGICAL UNIT NUMBER as two bytes have it: from 256 on in another form (SAM-5, 4.7.7.3).
    fn lun(&self) -> u16 {
        let [first, second, ..] = Lun::of(self.unit.lun).0;
        u16::from_be_bytes([first, second])
    }

    /// What open-iscsi is told, in order.
    fn login(&self) -> Vec<String> {
        let at = self.at;
        let node = format!("iscsiadm -m node -T {} -p {at}", self.unit.target);
        let mut lines = Vec::new();
        match self.discovery {
            None => lines.push(format!("iscsiadm -m discovery -t sendtargets -p {at}")),
            Some(user) => {
                let record = format!("iscsiadm -m discoverydb -t sendtargets -p {at}");
                lines.push(format!("{record} -o new"));
                lines.extend(proof(&record, "discovery.sendtargets", &quoted(user)));
                lines.push(format!("{record} --discover"));
            }
        }
        if let Some(user) = self.user() {
            lines.extend(proof(&node, "node.session", &user));
        }
        lines.push(format!("{node} --login"));
        lines
    }

    fn linux(&self) -> Vec<String> {
        let at = self.at;
        let mut lines = vec!["# with the package open-iscsi".to_owned()];
        lines.extend(who(&self.unit.hosts, "its name is in /etc/iscsi/initiatorname.iscsi"));
        lines.extend(self.login());
        let target = &self.unit.target;
        let lun = match self.lun() {
            lun if lun < 256 => lun.to_string(),
            lun => format!("{lun:#06x}000000000000"),
        };
        lines.push(format!("# its disk: /dev/disk/by-path/ip-{at}-iscsi-{target}-lun-{lun}"));
        lines
    }

    fn qemu(&self) -> Vec<String> {
        let at = self.at;
        let url = format!("iscsi://{at}/{}/{}", self.unit.target, self.lun());
        let mut lines = Vec::new();
        if let Some(user) = self.user() {
            lines.push(format!("export LIBISCSI_CHAP_USERNAME={user}"));
            lines.push("export LIBISCSI_CHAP_PASSWORD=SECRET".to_owned());
        }
        let as_whom = |host| format!(" -iscsi initiator-name={host}");
        let as_whom = self.host().map_or_else(String::new, as_whom);
        lines.extend(who(&self.unit.hosts, "QEMU says its name by -iscsi initiator-name"));
        lines.push(format!("qemu-img info {url}"));
        lines.push(format!("qemu-system-x86_64{as_whom} -drive file={url},format=raw,if=virtio"));
        lines
    }

    fn windows(&self) -> Vec<String> {
        let HostPort { host, tcp_port } = self.at;
        let portal = format!("-TargetPortalAddress {host} -TargetPortalPortNumber {tcp_port}");
        let proof = |user: &str| {
            // PowerShell has another way to write a quote in quotes.
            let user = format!("'{}'", user.replace('\'', "''"));
            format!(" -AuthenticationType ONEWAYCHAP -ChapUsername {user} -ChapSecret SECRET")
        };
        let chap = self.plain_user().map_or_else(String::new, proof);
        let asking = self.discovery.map_or_else(String::new, proof);
        let mut lines = vec!["# in PowerShell, as an administrator".to_owned()];
        lines
            .extend(who(&self.unit.hosts, "its name is shown by: (Get-InitiatorPort).NodeAddress"));
        lines.extend([
            "Set-Service msiscsi -StartupType Automatic; Start-Service msiscsi".to_owned(),
            format!("New-IscsiTargetPortal {portal}{asking}"),
            format!(
                "Connect-IscsiTarget -NodeAddress {} {portal} -IsPersistent $true{chap}",
                self.unit.target
            ),
            "Get-Disk | Where-Object BusType -eq iSCSI".to_owned(),
            "# for several paths use MPIO: a session has one connection here (no MC/S)".to_owned(),
        ]);
        lines
    }

    fn esxi(&self) -> Vec<String> {
        let at = self.at;
        let its_name = "its name is shown by: esxcli iscsi adapter get -A vmhbaN";
        let mut lines = Vec::from_iter(who(&self.unit.hosts, its_name));
        lines.extend([
            "esxcli iscsi software set --enabled=true".to_owned(),
            "esxcli iscsi adapter list".to_owned(),
        ]);
        if let Some(user) = self.user() {
            lines.push(format!(
                "esxcli iscsi adapter auth chap set --adapter=vmhbaN --direction=uni --level=required --authname={user} --secret=SECRET"
            ));
        }
        lines.push(format!(
            "esxcli iscsi adapter discovery sendtarget add --adapter=vmhbaN --address={at}"
        ));
        if let Some(user) = self.discovery.map(quoted) {
            lines.push(format!(
                "esxcli iscsi adapter discovery sendtarget auth chap set --adapter=vmhbaN --address={at} --direction=uni --level=required --authname={user} --secret=SECRET"
            ));
        }
        lines.extend(["esxcli storage core adapter rescan --adapter=vmhbaN".to_owned()]);
        lines
    }

    fn proxmox(&self) -> Vec<String> {
        let at = self.at;
        let its_name = "a node's name is in /etc/iscsi/initiatorname.iscsi";
        let mut lines = Vec::from_iter(who(&self.unit.hosts, its_name));
        if self.user().is_some() || self.discovery.is_some() {
            lines.push("# Proxmox has no place for a secret: on each node first".to_owned());
            lines.extend(self.login());
        }
        if self.discovery.is_some() {
            lines.push(
                "# it asks for targets by itself, too: name the user of discovery.sendtargets.auth in /etc/iscsi/iscsid.conf"
                    .to_owned(),
            );
        }
        lines.push("# in a shell of one node; NAME is what the storage is to be called".to_owned());
        lines.push(format!(
            "pvesm add iscsi NAME --portal {at} --target {} --content images",
            self.unit.target
        ));
        lines
    }

    fn ipxe(&self) -> Vec<String> {
        let HostPort { host, tcp_port } = self.at;
        let mut lines = Vec::new();
        lines.extend(self.host().map(|first| format!("set initiator-iqn {first}")));
        if let Some(user) = self.user() {
            lines.push(format!("set username {user}"));
            lines.push("set password SECRET".to_owned());
        }
        lines.push("ifconf net0".to_owned());
        // Fields end at colons but in brackets, and LUNs are hexadecimal there.
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let (lun, target) = (self.lun(), &self.unit.target);
        lines.push(format!("sanboot iscsi:{host}::{tcp_port}:{lun:x}:{target}"));
        lines
    }
}
