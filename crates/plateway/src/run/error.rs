//! Why something of a running server could not be done: the object, what was expected, what was seen, and what to do next.

use crate::config::mistake::{Mistake, Span};

/// A failure that people read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{message}")]
pub(crate) struct RunError {
    message: String,
    #[help]
    help: Option<String>,
}

impl RunError {
    /// What happened to which object.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
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

    /// As a mistake of the configuration, at the place that is to be mended.
    pub(crate) fn at(self, span: Span) -> Mistake {
        Mistake::error(span, self.message).help(self.help)
    }

    /// One line for a log or an answer over the control socket.
    pub(crate) fn line(&self) -> String {
        match &self.help {
            Some(help) => format!("{} ({help})", self.message),
            None => self.message.clone(),
        }
    }
}
