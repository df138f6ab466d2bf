//! Why something of a running server could not be done: the object, what was expected, what was
//! seen, and what to do next.

use block::record::passed_here;

use crate::config::mistake::Mistake;
use crate::config::places::Places;

/// A failure that people read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
pub(crate) struct RunError {
    message: String,
    #[help]
    help: Option<String>,
    /// Which key of the configuration is to be mended; the thing itself where it is empty.
    key: String,
    /// The title of another thing that it cannot be beside.
    beside: Option<String>,
    kind: Kind,
}

/// What sets a failure apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Other,
    /// Somebody else has it, who may let go of it.
    InUse,
    /// A disk is not the one that is known there, until it is back or accepted.
    Unrecognised,
    /// It may be otherwise later, without a change of the configuration.
    Transient,
    /// Whoever runs this process may not look at it.
    Unpermitted,
}

impl RunError {
    /// What happened to which object.
    #[track_caller]
    pub(crate) fn new(message: impl Into<String>) -> Self {
        passed_here("refusal");
        let (help, key, beside) = (None, String::new(), None);
        Self { message: message.into(), help, key, beside, kind: Kind::Other }
    }

    /// Of a disk that is not the one that is known there.
    #[track_caller]
    pub(super) fn unrecognised(message: String) -> Self {
        Self { kind: Kind::Unrecognised, ..Self::new(message) }
    }

    /// With what to do next.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Of something that belongs to this object.
    pub(crate) fn within(mut self, object: &str) -> Self {
        self.message = format!("{object}: {}", self.message);
        self
    }

    /// With more words at the end.
    pub(super) fn and(mut self, words: &str) -> Self {
        self.message += words;
        self
    }

    /// To be mended at this key.
    pub(crate) fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// To be mended here or at the thing of this title.
    pub(crate) fn beside(mut self, title: String) -> Self {
        self.beside = Some(title);
        self
    }

    /// Of what somebody else has, who may let go of it.
    pub(super) fn in_use(mut self) -> Self {
        self.kind = Kind::InUse;
        self
    }

    /// Of what may be otherwise later, without a change of the configuration.
    pub(crate) fn transient(mut self) -> Self {
        self.kind = Kind::Transient;
        self
    }

    /// Of what whoever runs this process may not look at.
    pub(crate) fn unpermitted(mut self) -> Self {
        self.kind = Kind::Unpermitted;
        self
    }

    /// Whether somebody else, such as a server, may see more.
    pub(crate) fn is_unpermitted(&self) -> bool {
        self.kind == Kind::Unpermitted
    }

    /// Whether it may be otherwise later.
    pub(super) fn is_transient(&self) -> bool {
        !matches!(self.kind, Kind::Other | Kind::Unpermitted)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.kind == Kind::InUse
    }

    /// As a mistake of the configuration in the thing of this title, at the place that is to be
    /// mended.
    pub(crate) fn at(self, places: &Places, title: &str) -> Mistake {
        let mistake = Mistake::error(places.find(title, &self.key), self.message).meant(self.help);
        match self.beside {
            Some(other) => mistake.first(&places.find(&other, "")),
            None => mistake,
        }
    }

    /// One line for a log or an answer over the control socket.
    pub(crate) fn line(&self) -> String {
        match &self.help {
            Some(help) => format!("{} ({help})", self.message),
            None => self.message.clone(),
        }
    }
}
