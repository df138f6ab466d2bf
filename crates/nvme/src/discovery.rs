//! The discovery log, 70h: the subsystems that a host may use, at the address that it used.
//!
//! The discovery subsystem is on every NVMe listener. An entry names the address by which this host
//! reached us, since that one works for it; other listeners tell their own. Referrals are not made:
//! there is one target. A page is built for what is asked, so a large log costs what is read of it.
//! Spec: NVMe base, "Discovery Log Page".

use contract::Endpoint;
use wire::nvme::Nqn;
use wire::nvme::log::{AddressFamily, DiscoveryEntry, DiscoveryHeader, DiscoverySubtype, GetLog};

use wire::nvme::Status;

use crate::controllers::ReplyData;
use crate::log;

/// Bytes of the header, and of each entry.
const RECORD: u64 = DiscoveryHeader::SIZE as u64;
const _: () = assert!(DiscoveryHeader::SIZE == DiscoveryEntry::SIZE);

/// The part of the log that is asked for. `subsystems` are those that the host may use, in order;
/// `generation` is GENCTR.
pub(crate) fn page(
    generation: u64,
    subsystems: &[&Nqn],
    endpoint: &Endpoint,
    wanted: &GetLog,
) -> Result<ReplyData, Status> {
    let records = subsystems.len() as u64;
    let length = (records + 1) * RECORD;
    if wanted.offset > length {
        return Err(Status::INVALID_FIELD);
    }
    let end = length.min(wanted.offset + wanted.bytes);
    let first = wanted.offset / RECORD;
    let behind = end.div_ceil(RECORD);
    let mut data = Vec::with_capacity((behind.saturating_sub(first) * RECORD) as usize);
    for record in first..behind {
        let Some(index) = record.checked_sub(1) else {
            data.extend_from_slice(
                &DiscoveryHeader { generation, records, record_format: 0 }.emit(),
            );
            continue;
        };
        data.extend_from_slice(&entry(subsystems[index as usize], endpoint).emit());
    }
    data.truncate((end - first * RECORD) as usize);
    data.drain(..data.len().min((wanted.offset - first * RECORD) as usize));
    Ok(log::part(data, wanted))
}

fn entry(subsystem: &Nqn, endpoint: &Endpoint) -> DiscoveryEntry {
    // A listener on [::] sees IPv4 hosts under mapped addresses, which they would not know.
    let address = endpoint.local.ip().to_canonical();
    let family = if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 };
    // PORTID 0 is nobody's.
    let port_id = (endpoint.listener.0 as u16).wrapping_add(1);
    let tcp_port = endpoint.local.port();
    let text = address.to_string();
    DiscoveryEntry::tcp(DiscoverySubtype::NVM, family, &text, tcp_port, port_id, subsystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{endpoint, nqn};
    use wire::nvme::Command;
    use wire::nvme::log::LogId;

    fn wanted(offset: u64, bytes: u32) -> GetLog {
        GetLog::from_command(&Command::get_log(LogId::DISCOVERY, 0, offset, bytes, true))
    }

    #[test]
    fn any_cut_of_the_log_equals_that_part_of_the_whole() {
        let names = [nqn("nqn.a"), nqn("nqn.b")];
        let names: Vec<&Nqn> = names.iter().collect();
        let at = endpoint("192.0.2.1:4420");
        let whole = page(7, &names, &at, &wanted(0, 3072)).expect("the whole log").bytes;
        for offset in (0..=3072_u32).step_by(124) {
            for bytes in [4, 1024, 4096] {
                let part = page(7, &names, &at, &wanted(offset.into(), bytes)).expect("a part");
                let end = 3072.min(offset + bytes);
                assert_eq!(part.bytes, whole[offset as usize..end as usize]);
                assert_eq!(part.zeros, bytes - (end - offset));
            }
        }
        assert_eq!(page(7, &names, &at, &wanted(3076, 4)), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn an_entry_names_the_address_that_the_host_used() {
        let name = nqn("nqn.a");
        let seen = entry(&name, &endpoint("[::ffff:192.0.2.1]:4420"));
        assert_eq!((seen.family, seen.address_text()), (AddressFamily::IPV4, "192.0.2.1".into()));
        let seen = entry(&name, &endpoint("[2001:db8::1]:8009"));
        assert_eq!((seen.family, seen.address_text()), (AddressFamily::IPV6, "2001:db8::1".into()));
        assert_eq!(seen.service_text(), "8009");
    }
}
