//! What left by a port in each millisecond, as it is told.
//!
//! Units: milliseconds, bytes, bits a second in text. No errors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::control::{SchemaVersion, table};

/// Bytes that left by a port of a router in each millisecond, and what waited for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = RouterPortBins)]
pub(crate) struct Bins {
    #[serde(default)]
    pub(crate) schema_version: SchemaVersion,
    pub(crate) router: String,
    pub(crate) port: String,
    /// Of frames that were sent on and messages about paths, with their Ethernet headers; not those of
    /// exports on a pseudowire that ends in this process.
    pub(crate) bytes: Vec<u32>,
    /// The most frames that waited for the port as one came, with those that the driver had.
    #[serde(default)]
    pub(crate) queued: Vec<u32>,
}

/// Bits a second of so many bytes in a millisecond.
fn mbit(bytes: f64) -> String {
    format!("{:.2} mbit", bytes * 8.0 / 1e3)
}

impl Bins {
    /// The mean, and how busy single milliseconds were.
    pub(crate) fn text(&self) -> String {
        let mut sorted = self.bytes.clone();
        sorted.sort_unstable();
        let count = sorted.len().max(1);
        let sum: u64 = sorted.iter().map(|bytes| u64::from(*bytes)).sum();
        let idle = sorted.iter().filter(|bytes| **bytes == 0).count();
        let at = |share: f64| {
            let index = ((sorted.len() as f64 * share) as usize).min(count - 1);
            f64::from(sorted.get(index).copied().unwrap_or_default())
        };
        let mut table = table(&["of its milliseconds", "sent"]);
        for (name, bytes) in [
            ("mean", sum as f64 / count as f64),
            ("half no more than", at(0.5)),
            ("90% no more than", at(0.9)),
            ("99% no more than", at(0.99)),
            ("busiest", at(1.0)),
        ] {
            table.add_row([name.to_owned(), mbit(bytes)]);
        }
        let (port, router) = (&self.port, &self.router);
        let queued = self.queued.iter().max().copied().unwrap_or_default();
        format!(
            "port {port} of router {router}: {sum} bytes in {} ms, of which {idle} were idle; at most {queued} frames waited\n{table}\n",
            sorted.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_told_as_rates() {
        let bytes = (0..100).map(|ms| if ms < 20 { 0 } else { 125 * (ms - 19) }).collect();
        let (router, port, queued) = ("r".into(), "eth1".into(), vec![0, 12, 3]);
        let bins = Bins { router, port, bytes, queued, ..Bins::default() };
        let text = bins.text();
        let first = "port eth1 of router r: 405000 bytes in 100 ms, of which 20 were idle; at most 12 frames waited\n";
        assert!(text.starts_with(first), "{text}");
        let words: Vec<&str> = text.split_whitespace().filter(|word| word.contains('.')).collect();
        assert_eq!(words, ["32.40", "31.00", "71.00", "80.00", "80.00"], "{text}");
        assert!(Bins::default().text().contains("0 bytes in 0 ms"));
    }
}
