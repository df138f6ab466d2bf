//! The AoE messages of a capture: each is a frame, and an answer has the tag of its request.
//!
//! A *connection* here is what an initiator (its MAC address) says to one shelf.slot, or to all.
//! Latencies are told of the answers to requests whose last copy was seen; how many requests are
//! remembered is bounded.

use std::collections::BTreeMap;

use wire::aoe::{Address, Command, Message};
use wire::ethernet::{EtherType, MacAddress};

use crate::commands::dissect::{Frame, Said};

/// Requests that are remembered until they are answered; of more, latencies are not told.
const UNDER_WAY_MAX: usize = 65_536;

/// What is remembered of AoE.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// The numbers of connections.
    numbers: BTreeMap<(MacAddress, Address), usize>,
    /// When requests were sent, by initiator and tag.
    under_way: BTreeMap<(MacAddress, u32), u64>,
}

/// A message, and whose it is.
#[derive(Debug)]
pub(crate) struct Line {
    /// The connection, if it is known.
    pub(crate) connection: Option<usize>,
    /// Its name, for a new one.
    pub(crate) name: String,
    key: (MacAddress, Address),
    pub(crate) from_host: bool,
    pub(crate) said: Said,
}

impl Talk {
    pub(crate) const ETHER_TYPE: EtherType = EtherType::AOE;

    /// Reads a message.
    pub(crate) fn message(&mut self, time_ns: u64, frame: &Frame<'_>) -> Line {
        let [source, destination] = [frame.source, frame.destination].map(MacAddress);
        let (from_host, initiator, pdu, mut text, header) = match Message::parse(frame.payload) {
            Ok(message) => {
                let header = message.header;
                let from_host = !header.flags.is_response();
                let initiator = if from_host { source } else { destination };
                let name = header.command.name();
                let pdu = name.map_or_else(|| header.command.to_string(), str::to_owned);
                (from_host, initiator, pdu, message.to_string(), Some(header))
            }
            Err(error) => (true, source, String::new(), error.to_string(), None),
        };
        // An announcement is said to all, by a target.
        if !from_host && initiator == MacAddress::BROADCAST {
            text = format!("{text} from {source}");
        }
        let mut latency_ns = None;
        if let Some(header) = header {
            let key = (initiator, header.tag);
            if from_host && self.under_way.len() < UNDER_WAY_MAX {
                self.under_way.insert(key, time_ns);
            } else if let Some(since) = self.under_way.get(&key).copied() {
                latency_ns = Some(time_ns.saturating_sub(since));
                // A query may have many answers.
                if header.command != Command::CONFIG {
                    self.under_way.remove(&key);
                }
            }
        }
        let address = header.map_or(Address::ANY, |header| header.address);
        let key = (initiator, address);
        Line {
            connection: self.numbers.get(&key).copied(),
            name: format!("AoE of {initiator} to {address}"),
            key,
            from_host,
            said: Said { pdu, text, latency_ns },
        }
    }

    /// Numbers a new connection.
    pub(crate) fn number(&mut self, line: &Line, number: usize) {
        self.numbers.insert(line.key, number);
    }

    /// Connections that have numbers.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}
