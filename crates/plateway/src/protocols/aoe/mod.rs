//! ATA over Ethernet: volumes at a shelf and slot on links, and targets on links as disks.

pub(crate) mod config;
mod connect;
pub(crate) mod discover;
pub(crate) mod dissect;
pub(crate) mod import;
pub(crate) mod metrics;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod uri;

use toml::Spanned;
use wire::aoe::Address;
use wire::ethernet::MacAddress;

use super::LowExports;
use crate::config::file::{Low, LowWords};
use crate::config::mistake::{Mistake, Span};
use crate::config::quick::{Line, QuickWay, split_commas};
use config::LowTarget;

/// What hosts are named by, and by which protocol.
pub(super) const HOST_WORD: (&str, &str) = ("a MAC address", "AoE");

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Flags {
    /// Where to answer AoE: the first disk is at this shelf and slot, the next at the next slot;
    /// may be given again
    #[arg(long, value_name = "INTERFACE/SHELF.SLOT", conflicts_with = "config")]
    pub(crate) aoe: Vec<String>,
}

impl Flags {
    pub(super) fn is_empty(&self) -> bool {
        self.aoe.is_empty()
    }

    pub(super) fn way(
        &self,
        line: &mut Line,
        mistakes: &mut Vec<Mistake>,
    ) -> Option<Box<dyn QuickWay>> {
        let written: Vec<_> = self.aoe.iter().map(|place| line.flag("--aoe", place)).collect();
        let places = written.iter().filter_map(|written| first_place(written, mistakes)).collect();
        (!self.is_empty()).then(|| Box::new(Targets(places)) as Box<dyn QuickWay>)
    }
}

/// Where the first disk is: interfaces, and an address.
struct FirstPlace {
    interface: Spanned<LowWords>,
    address: Spanned<Address>,
}

/// `INTERFACE[,INTERFACE]/SHELF.SLOT`
fn first_place(written: &Spanned<String>, mistakes: &mut Vec<Mistake>) -> Option<FirstPlace> {
    let (text, span) = (written.get_ref(), written.span());
    let Some((interfaces, address)) = text.split_once('/') else {
        let message = format!("--aoe: expected an interface, / and shelf.slot, seen {text:?}");
        mistakes.push(Mistake::error(span, message).help("as in --aoe eth1/7.0"));
        return None;
    };
    let end = span.start + interfaces.len();
    let names = Spanned::new(span.start..end, interfaces.to_owned());
    let interface = Spanned::new(names.span(), LowWords::List(split_commas(&names)));
    match address.parse::<Address>() {
        Ok(address) => {
            Some(FirstPlace { interface, address: Spanned::new(end + 1..span.end, address) })
        }
        Err(error) => {
            let message = format!("--aoe: {error}, seen {address:?}");
            mistakes.push(Mistake::error(end + 1..span.end, message));
            None
        }
    }
}

/// Each disk is at a slot of its own, at every place.
struct Targets(Vec<FirstPlace>);

impl QuickWay for Targets {
    fn names_host(&self, word: &str) -> bool {
        word.parse::<MacAddress>().is_ok()
    }

    fn exports(&self, index: usize, _: &str, _: &Span, hosts: Low<LowWords>) -> Vec<LowExports> {
        let export = |FirstPlace { interface, address }: &FirstPlace| {
            let number = |number: i64| Some(Spanned::new(address.span(), number));
            let target = LowTarget {
                span: interface.span(),
                interface: Some(interface.clone()),
                shelf: number(address.get_ref().shelf.into()),
                slot: number(i64::from(address.get_ref().slot) + index as i64),
                hosts: hosts.clone(),
                ..LowTarget::default()
            };
            LowExports { aoe: Some(target), ..LowExports::default() }
        };
        self.0.iter().map(export).collect()
    }
}
