//! How hosts prove who they are: `chap` of an export's `iscsi`, which is its target's, and of a
//! `[[listener]]`, which is discovery's there.
//!
//! In: what was written. Out: users, and where their secrets are; the secrets themselves are read
//! when they are used (`secret`). Spec: RFC 7143, 12.1.3.

use std::fmt;

use toml::Spanned;

use super::secret::{OF_HOST, OF_TARGET, SecretSource};
use crate::config::file::{Low, TableReader, Written};
use crate::config::mistake::{Mistake, Span};
use crate::config::resolve::Resolver;
use crate::config::text::quoted;

const USER: &str = "the name of a user in quotes";
const SECRET_FILE: &str = "the path of a file in quotes";

crate::config::file::table! {
    LowMutual = "mutual of chap" {
        user: String = USER,
        secret_file: String = SECRET_FILE,
    }
}

/// `chap` as written.
#[derive(Debug, Default)]
pub(crate) struct LowChap {
    pub(crate) span: Span,
    pub(crate) user: Low<String>,
    pub(crate) secret_file: Low<String>,
    pub(crate) mutual: Option<LowMutual>,
}

impl Written for LowChap {
    const TITLE: &'static str = "chap";
    const KEYS: &'static [&'static str] = &["user", "secret_file", "mutual"];

    fn read(table: &mut TableReader<'_, '_>) -> Self {
        Self {
            span: table.span.clone(),
            user: table.take("user", USER),
            secret_file: table.take("secret_file", SECRET_FILE),
            mutual: table.table("mutual"),
        }
    }
}

/// A user, and where its secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserConfig {
    pub(crate) user: String,
    pub(crate) secret: SecretSource,
}

/// Who may log in, and as whom the target proves itself to hosts that ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChapConfig {
    pub(crate) user: UserConfig,
    pub(crate) mutual: Option<UserConfig>,
}

impl ChapConfig {
    /// Everybody of whom a secret is known.
    pub(crate) fn users(&self) -> impl Iterator<Item = &UserConfig> {
        [Some(&self.user), self.mutual.as_ref()].into_iter().flatten()
    }

    /// As a file has it.
    pub(in crate::protocols) fn text(&self) -> String {
        let mutual = self.mutual.as_ref().map(|one| format!(", mutual = {{ {} }}", one.text()));
        format!("{{ {}{} }}", self.user.text(), mutual.unwrap_or_default())
    }

    /// The names alone, for `status`.
    pub(super) fn names(&self) -> String {
        let mutual = self.mutual.as_ref().map(|one| format!(", mutual {}", one.user));
        format!("{}{}", self.user.user, mutual.unwrap_or_default())
    }
}

impl UserConfig {
    fn text(&self) -> String {
        let user = quoted(&self.user);
        match &self.secret {
            SecretSource::File(path) => {
                let path = quoted(&path.display().to_string());
                format!("user = {user}, secret_file = {path}")
            }
            SecretSource::Variable(_) => format!("user = {user}"),
        }
    }
}

/// For steps: also another file is another value.
impl fmt::Display for ChapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.user.user, self.user.secret)?;
        match &self.mutual {
            Some(one) => write!(f, ", mutual {} ({})", one.user, one.secret),
            None => Ok(()),
        }
    }
}

/// What a step says of a value that may be absent.
pub(in crate::protocols) fn shown(chap: Option<&ChapConfig>) -> String {
    chap.map_or_else(|| "none".to_owned(), ChapConfig::to_string)
}

impl Resolver<'_> {
    /// What `chap` means; `None` where it is wrong.
    pub(in crate::protocols) fn chap(&mut self, low: &LowChap) -> Option<ChapConfig> {
        let written = (&low.user, &low.secret_file);
        let user = self.chap_user(&low.span, LowChap::TITLE, written, OF_HOST);
        let mutual = low.mutual.as_ref().map(|low| {
            let written = (&low.user, &low.secret_file);
            self.chap_user(&low.span, LowMutual::TITLE, written, OF_TARGET)
        });
        let (user, mutual) = match mutual {
            Some(mutual) => (user?, Some(mutual?)),
            None => (user?, None),
        };
        if mutual.as_ref().is_some_and(|mutual| mutual.secret == user.secret) {
            let message = format!("mutual of chap has the secret of {} as well", user.secret);
            let help = "whoever knows a secret could answer for both ends: give each its own";
            self.push(Mistake::error(low.span.clone(), message).help(help));
            return None;
        }
        Some(ChapConfig { user, mutual })
    }

    fn chap_user(
        &mut self,
        table: &Span,
        title: &str,
        (user, secret_file): (&Low<String>, &Low<String>),
        variable: &'static str,
    ) -> Option<UserConfig> {
        let path = self.path(secret_file, "secret_file");
        let secret = SecretSource::of(path.as_deref(), variable);
        let Some(written) = user else {
            self.missing(table, title, "user", "user = \"u\"");
            return None;
        };
        self.check_user(written).then(|| UserConfig { user: written.get_ref().clone(), secret })
    }

    fn check_user(&mut self, written: &Spanned<String>) -> bool {
        let user = written.get_ref();
        let is_one = is_user(user);
        if !is_one {
            let message = format!("user: expected {EXPECTED_USER}, seen {user:?}");
            self.error(written.span(), message);
        }
        is_one
    }
}

/// As messages call what [`is_user`] takes.
pub(super) const EXPECTED_USER: &str = "a name of 1 to 255 bytes without control characters";

/// Whether it can be the value of CHAP_N (RFC 7143, 6.1 and 12.1.3).
pub(super) fn is_user(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.contains(char::is_control)
}
