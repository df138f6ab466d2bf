//! `host:port` as listeners and remote disks are named: `127.0.0.1:4420`, `[::]:4420`, `nas:4420`.
//!
//! An IPv6 address stands in brackets and may carry a zone (`[fe80::1%eth0]:4420`). Names are kept
//! as names; whoever binds or connects resolves them. Errors name what was expected at which byte.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub(crate) host: String,
    /// The TCP port; 0 lets the kernel choose where a listener is bound.
    pub(crate) tcp_port: u16,
}

/// A text that is no `host:port`: what was expected at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct AddressError {
    /// What was expected and seen.
    pub(crate) message: String,
    /// The offending byte's offset in the text.
    pub(crate) offset: usize,
}

impl HostPort {
    /// Parses `host:port`, or `host` alone where there is a default for the port.
    pub(crate) fn parse(text: &str, tcp_port_default: Option<u16>) -> Result<Self, AddressError> {
        let fail = |offset, message: String| Err(AddressError { message, offset });
        let (host, rest_at) = if text.starts_with('[') {
            let Some(end) = text.find(']') else {
                let message = format!("expected a closing ] after the IPv6 address, seen {text:?}");
                return fail(0, message);
            };
            (&text[1..end], end + 1)
        } else {
            let end = text.find(':').unwrap_or(text.len());
            if text[end..].matches(':').count() > 1 {
                let message =
                    format!("an IPv6 address stands in brackets, as in [::1]:4420; seen {text:?}");
                return fail(0, message);
            }
            (&text[..end], end)
        };
        if let Err(expected) = check_host(host, text.starts_with('[')) {
            return fail(0, format!("expected {expected}, seen {host:?}"));
        }
        let host = host.to_owned();
        let Some(port) = text[rest_at..].strip_prefix(':') else {
            let seen = &text[rest_at..];
            return match tcp_port_default.filter(|_| seen.is_empty()) {
                Some(tcp_port) => Ok(Self { host, tcp_port }),
                None => {
                    let expected = "a colon and a port after the host, as in 127.0.0.1:4420";
                    fail(rest_at, format!("expected {expected}; seen {seen:?}"))
                }
            };
        };
        match port.parse() {
            // A sign is none of a port's, though numbers may have one.
            Ok(tcp_port) if port.bytes().all(|b| b.is_ascii_digit()) => Ok(Self { host, tcp_port }),
            _ => fail(rest_at + 1, format!("expected a port of 0 to 65535, seen {port:?}")),
        }
    }

    /// The address, where the host is one rather than a name (a zone is dropped).
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        let bare = self.host.split('%').next().unwrap_or_default();
        bare.parse().ok()
    }

    /// Whether two listeners on these addresses would fight for the same port: equal hosts, or a
    /// wildcard beside any address that it covers. `[::]` covers IPv4 too, as Linux binds it.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        if self.tcp_port != other.tcp_port || self.tcp_port == 0 {
            return false;
        }
        let covers = |wild: Option<IpAddr>, host: Option<IpAddr>| match wild {
            Some(ip) if ip == ANY_V6 => true,
            Some(ip) if ip == ANY_V4 => {
                !matches!(host, Some(IpAddr::V6(ip)) if ip != Ipv6Addr::UNSPECIFIED)
            }
            _ => false,
        };
        let (mine, theirs) = (self.ip(), other.ip());
        self.host == other.host || covers(mine, theirs) || covers(theirs, mine)
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text, None)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.tcp_port)
        } else {
            write!(f, "{}:{}", self.host, self.tcp_port)
        }
    }
}

/// Checks a host without its brackets; the error is what was expected.
fn check_host(host: &str, bracketed: bool) -> Result<(), &'static str> {
    if bracketed {
        let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
        let zone_ok = !zone.is_empty()
            && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        return if address.parse::<Ipv6Addr>().is_ok() && zone_ok {
            Ok(())
        } else {
            Err("an IPv6 address in the brackets")
        };
    }
    // A name that ends in a number is an address to every resolver, so it must be a whole one.
    let last = host.rsplit('.').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().map(drop).map_err(|_| "an IPv4 address of four numbers");
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !host.is_empty() && host.len() <= 253 && host.bytes().all(legal) && !host.starts_with('.') {
        Ok(())
    } else {
        Err("a host name or address, as in 127.0.0.1:4420 or [::]:4420")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HostPort {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_round_trip() {
        for text in [
            "127.0.0.1:4420",
            "[::]:4420",
            "[fe80::1%eth0]:8009",
            "nas.example.net:1",
            "localhost:0",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(HostPort::parse("[::1]", Some(4420)).unwrap().to_string(), "[::1]:4420");
        assert_eq!(HostPort::parse("nas", Some(4420)).unwrap().to_string(), "nas:4420");
    }

    #[test]
    fn errors_point_at_the_byte() {
        for (text, offset, word) in [
            ("127.0.0.1", 9, "a colon and a port"),
            ("127.0.0.1:", 10, "a port of 0 to 65535"),
            ("127.0.0.1:70000", 10, "seen \"70000\""),
            ("127.0.0.1:+1", 10, "a port of 0 to 65535"),
            ("127.0.1:4420", 0, "an IPv4 address of four numbers"),
            (":4420", 0, "a host name or address"),
            ("::1:4420", 0, "stands in brackets"),
            ("[::1:4420", 0, "a closing ]"),
            ("[::1]4420", 5, "a colon and a port"),
            ("[1.2.3.4]:4420", 0, "an IPv6 address in the brackets"),
            ("a b:4420", 0, "a host name or address"),
        ] {
            let error = text.parse::<HostPort>().unwrap_err();
            assert_eq!(error.offset, offset, "{text}: {error}");
            assert!(error.message.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn wildcards_overlap_what_they_cover() {
        let overlaps =
            |a: &str, b: &str| parse(a).overlaps(&parse(b)) && parse(b).overlaps(&parse(a));
        assert!(overlaps("127.0.0.1:4420", "127.0.0.1:4420"));
        assert!(overlaps("0.0.0.0:4420", "127.0.0.1:4420"));
        assert!(overlaps("[::]:4420", "127.0.0.1:4420"));
        assert!(overlaps("[::]:4420", "0.0.0.0:4420"));
        assert!(!overlaps("0.0.0.0:4420", "[::1]:4420"));
        assert!(!overlaps("127.0.0.1:4420", "127.0.0.2:4420"));
        assert!(!overlaps("127.0.0.1:4420", "127.0.0.1:4421"));
        assert!(!overlaps("127.0.0.1:0", "127.0.0.1:0"));
    }
}
