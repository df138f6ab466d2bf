//! The discovery log, 70h: a header of 1024 bytes and entries of 1024 bytes.
//!
//! A host reads the header, the entries and the header again, and starts over if GENCTR changed.

use crate::nvme::nqn::Nqn;
use crate::{ParseError, ascii_field, ascii_text};

layout! {
    /// The header.
    pub struct DiscoveryHeader[1024] {
        /// GENCTR: changes whenever the log does.
        0 => generation: u64,
        /// NUMREC: entries that follow.
        8 => records: u64,
        /// RECFMT: 0.
        16 => record_format: u16,
    }
}

codes! {
    /// TRTYPE: the transport.
    pub struct TransportType(u8) {
        RDMA = 1 "rdma",
        FIBRE_CHANNEL = 2 "fc",
        TCP = 3 "tcp",
        INTRA_HOST = 254 "loop",
    }
}

codes! {
    /// ADRFAM: what TRADDR is.
    pub struct AddressFamily(u8) {
        IPV4 = 1 "ipv4",
        IPV6 = 2 "ipv6",
        INFINIBAND = 3 "ib",
        FIBRE_CHANNEL = 4 "fc",
        INTRA_HOST = 254 "loop",
    }
}

codes! {
    /// SUBTYPE: what an entry leads to.
    pub struct DiscoverySubtype(u8) {
        REFERRAL = 1 "referral",
        NVM = 2 "nvm subsystem",
        CURRENT = 3 "current discovery subsystem",
    }
}

codes! {
    /// SECTYPE: first byte of TSAS for TCP.
    pub struct SecurityType(u8) {
        NONE = 0 "none",
        TLS_1_2 = 1 "tls1.2",
        TLS_1_3 = 2 "tls1.3",
    }
}

layout! {
    /// One entry.
    pub struct DiscoveryEntry[1024] {
        /// TRTYPE.
        0 => transport: TransportType,
        /// ADRFAM.
        1 => family: AddressFamily,
        /// SUBTYPE.
        2 => subtype: DiscoverySubtype,
        /// TREQ: bits 1:0 secure channel (1 required, 2 not), bit 2 SQ flow control may be off.
        3 => requirements: u8,
        /// PORTID.
        4 => port_id: u16,
        /// CNTLID: 0xffff for the dynamic model.
        6 => controller_id: u16,
        /// ASQSZ: most entries of the admin queue, at least 32.
        8 => admin_queue_size: u16,
        /// EFLAGS: bit 0 DUPRETINFO, bit 1 EPCSD.
        10 => flags: u16,
        /// TRSVCID, ASCII: the TCP port in decimal.
        32 => service: [u8; 32],
        /// SUBNQN, padded with NUL; see [`DiscoveryEntry::subsystem`].
        256 => subnqn: [u8; 256],
        /// TRADDR, ASCII: the address.
        512 => address: [u8; 256],
        /// TSAS; byte 0 is SECTYPE.
        768 => security: SecurityType,
    }
}

impl DiscoveryEntry {
    /// TREQ 1:0: a secure channel is not required.
    pub const SECURE_NOT_REQUIRED: u8 = 2;
    /// TREQ bit 2: SQ flow control may be disabled.
    pub const DISABLE_SQ_FLOW: u8 = 4;

    /// A way over TCP to `subsystem`, dynamic controllers, admin queue of 32, no secure channel.
    pub fn tcp(
        subtype: DiscoverySubtype,
        family: AddressFamily,
        address: &str,
        tcp_port: u16,
        port_id: u16,
        subsystem: &Nqn,
    ) -> Self {
        Self {
            transport: TransportType::TCP,
            family,
            subtype,
            requirements: Self::SECURE_NOT_REQUIRED | Self::DISABLE_SQ_FLOW,
            port_id,
            controller_id: 0xffff,
            admin_queue_size: 32,
            flags: 0,
            service: ascii_field(&tcp_port.to_string()),
            subnqn: subsystem.emit(),
            address: ascii_field(address),
            security: SecurityType::NONE,
        }
    }

    /// SUBNQN as a name.
    pub fn subsystem(&self) -> Result<Nqn, ParseError> {
        Nqn::parse("SUBNQN", 256, &self.subnqn)
    }

    /// TRADDR without its padding.
    pub fn address_text(&self) -> String {
        ascii_text(&self.address)
    }

    /// TRSVCID without its padding.
    pub fn service_text(&self) -> String {
        ascii_text(&self.service)
    }
}
