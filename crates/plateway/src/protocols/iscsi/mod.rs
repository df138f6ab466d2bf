//! iSCSI: volumes as logical units of targets, and logical units of other targets as disks.

pub(crate) mod chap;
pub(crate) mod config;
mod connect;
pub(crate) mod discover;
pub(crate) mod dissect;
mod import;
pub(crate) mod metrics;
pub(crate) mod portal;
pub(crate) mod secret;
mod serve;
pub(crate) mod status;
pub(crate) mod uri;

use std::fmt;

use shard::Protocol;
use toml::Spanned;
use wire::iscsi::IscsiName;

use super::LowExports;
use crate::config::file::{Low, LowArgs, LowWords};
use crate::config::listener::LowListener;
use crate::config::mistake::Span;
use crate::config::quick::{Line, QuickWay};
use chap::LowChap;
use config::LowUnit;

/// What hosts are named by, and by which protocol.
pub(super) const HOST_WORD: (&str, &str) = ("an IQN", "iSCSI");
/// The domain that targets of the quick way are named in.
const IQN_PREFIX: &str = "iqn.2026-11.net.plateway:";

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Flags {
    /// Where to answer iSCSI; may be given again for another address
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "config")]
    pub(crate) iscsi: Vec<String>,
    /// The user as whom hosts have to log in to the targets of --iscsi (CHAP); anybody unless given
    #[arg(long, value_name = "NAME", requires = "iscsi", conflicts_with = "config")]
    pub(crate) chap_user: Option<String>,
    /// The file whose first line is that user's secret [default: the environment's
    /// PLATEWAY_CHAP_SECRET]
    #[arg(long, value_name = "FILE", requires = "chap_user", conflicts_with = "config")]
    pub(crate) chap_secret_file: Option<String>,
}

impl Flags {
    pub(super) fn is_empty(&self) -> bool {
        self.iscsi.is_empty()
    }

    /// Listens at every address.
    pub(super) fn way(&self, low: &mut LowArgs, line: &mut Line) -> Option<Box<dyn QuickWay>> {
        for address in &self.iscsi {
            let address = line.flag("--iscsi", address);
            low.listeners.push(LowListener {
                span: address.span(),
                address: Some((Protocol::Iscsi, address)),
                ..LowListener::default()
            });
        }
        let user = self.chap_user.as_ref().map(|user| line.flag("--chap-user", user));
        let secret_file = self.chap_secret_file.as_ref();
        let secret_file = secret_file.map(|file| line.flag("--chap-secret-file", file));
        let way: Box<dyn QuickWay> = Box::new(Units { user, secret_file });
        (!self.is_empty()).then_some(way)
    }
}

/// Each disk is LUN 0 of a target of its own, to which hosts log in as this user, if there is one.
struct Units {
    user: Low<String>,
    secret_file: Low<String>,
}

impl QuickWay for Units {
    fn names_host(&self, word: &str) -> bool {
        is_name(word)
    }

    fn exports(&self, _: usize, volume: &str, at: &Span, hosts: Low<LowWords>) -> Vec<LowExports> {
        let target = Spanned::new(at.clone(), format!("{IQN_PREFIX}{volume}"));
        let chap = self.user.as_ref().map(|user| LowChap {
            span: user.span(),
            user: self.user.clone(),
            secret_file: self.secret_file.clone(),
            mutual: None,
        });
        let iscsi = Some(LowUnit {
            span: at.clone(),
            target: Some(target),
            lun: Some(Spanned::new(at.clone(), 0)),
            hosts,
            chap,
            set_groups: None,
        });
        vec![LowExports { iscsi, ..LowExports::default() }]
    }
}

/// A name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) IscsiName);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        name(text).map(Named).map_err(|(message, _)| message)
    }
}

/// Whether a word is meant as an iSCSI name.
pub(super) fn is_name(word: &str) -> bool {
    let form = word.get(..4).unwrap_or_default().to_ascii_lowercase();
    ["iqn.", "eui.", "naa."].contains(&&*form)
}

/// A name as somebody wrote it, or what is wrong with it and at which byte.
pub(crate) fn name(text: &str) -> Result<IscsiName, (String, usize)> {
    IscsiName::new(text).map_err(|error| {
        let message = format!("iSCSI name {text:?}: expected {}", error.expected);
        (message, text.floor_char_boundary(error.offset.min(text.len())))
    })
}
