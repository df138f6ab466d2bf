//! What a lab asks its agent, and what that answers: a line of JSON each, one answer to each question
//! in their order.
//!
//! An answer is `{"is": ...}` or `{"error": "..."}`. Both ends are of one version, which the first
//! question sees to, so nothing here needs to be understood by another one. A line has at most
//! [`LINE_MAX`] bytes. Units are in the names.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest line: a plan, and what surrounds it.
pub(crate) const LINE_MAX: u64 = 16 << 20;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Who are you? Answered by an `Environment`.
    Hello { version: String, commit: Option<String> },
    /// The plan that all others speak of, word for word.
    Plan { name: String, text: String },
    /// What it asks of the far end and cannot have there: lines.
    Check,
    /// What of a path's interface is not as the plan says: lines.
    Line { path: usize },
    /// What time is it? Seconds since 1970.
    Clock,
    /// A trial begins: starts a system with so many disks, and waits until it is ready. System and path by
    /// their places in the plan.
    Start { system: usize, disks: u32, path: usize },
    /// An error if it has failed.
    IsUp,
    /// Looks at CPUs, and at a path's interface; answered by [`Looked`].
    Look { path: usize },
    /// What CPUs did between two looks of this trial, by their numbers: an `End`.
    Used { from: usize, to: usize },
    /// The trial is over: all that was started for it is ended.
    End,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Looked {
    /// By which it is asked for again.
    pub(crate) look: usize,
    /// Seconds since 1970, by the agent's clock.
    pub(crate) at: f64,
    /// Frames that its interface dropped so far.
    pub(crate) dropped: u64,
}

/// What an agent answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Answer {
    Is(Value),
    Error(String),
}

impl Answer {
    pub(crate) fn of<T: Serialize>(what: miette::Result<T>) -> Answer {
        let value = what.and_then(|value| {
            serde_json::to_value(value).map_err(|error| miette::miette!("{error}"))
        });
        match value {
            Ok(value) => Answer::Is(value),
            Err(why) => Answer::Error(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_line_that_reads_back() {
        let asked = Request::Plan { name: "a b".to_owned(), text: "x = 1\n# y\n".to_owned() };
        let line = serde_json::to_string(&asked).unwrap();
        assert_eq!(line, r#"{"ask":"plan","name":"a b","text":"x = 1\n# y\n"}"#);
        assert!(!line.contains('\n'), "no line has an end within it");
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), asked);
        let strange = serde_json::from_str::<Request>(r#"{"ask":"dance"}"#).unwrap_err();
        assert!(strange.to_string().contains("unknown variant `dance`"), "{strange}");
    }

    #[test]
    fn an_answer_is_a_value_or_why_there_is_none() {
        let text = |answer| serde_json::to_string(&answer).unwrap();
        assert_eq!(text(Answer::of(Ok(7))), r#"{"is":7}"#);
        let why = Answer::of::<()>(Err(miette::miette!("it rained")));
        assert_eq!(text(why), r#"{"error":"it rained"}"#);
    }
}
