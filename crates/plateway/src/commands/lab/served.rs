//! What a `plateway serve` of the lab's says of itself, held against what the plan asked for.
//!
//! In: its status, as the control socket answers it. A trial of something else than what its cell
//! says is no trial of that cell: an error says what was expected and seen. What the plan leaves to
//! it is kept with the trial.

use lab::plan::{Access, Driver, Serve};
use serde::{Deserialize, Serialize};

use crate::control::status::Status;

/// What it does its work with.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Served {
    /// `io_uring` or `epoll`.
    pub(super) driver: String,
    /// How long a shard looks for more of a connection; of protocols over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) poll: Option<String>,
    /// By what a link takes its frames; of AoE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) access: Option<String>,
    /// How its disk is reached: `direct`, `cached`, `memory` or `remote`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk_access: Option<String>,
}

impl Served {
    pub(super) fn of(status: &Status) -> Served {
        Served {
            driver: status.driver.clone(),
            poll: status.listeners.first().map(|listener| listener.poll.clone()),
            access: status.links.first().map(|link| link.method.clone()),
            disk_access: status.disks.first().map(|disk| disk.access.clone()),
        }
    }

    /// An error where it is not what was asked for.
    pub(super) fn keeps(&self, serve: &Serve) -> miette::Result<()> {
        let told = |what: &str, expected: &str, seen: &str| {
            miette::miette!("{what} of plateway serve: expected {expected}, seen {seen}")
        };
        if let Some(driver @ (Driver::IoUring | Driver::Epoll)) = serve.driver
            && driver.word() != self.driver
        {
            return Err(told("driver", driver.word(), &self.driver));
        }
        if let (Some(asked), Some(seen)) = (serve.poll, &self.poll)
            && asked.to_string() != *seen
        {
            return Err(told("poll", &asked.to_string(), seen));
        }
        // Of a link it is said in more words than it is asked for.
        if let (Some(asked), Some(seen)) = (serve.access.map(Access::word), &self.access)
            && !seen.starts_with(asked)
        {
            return Err(told("access", asked, seen));
        }
        match self.disk_access.as_deref() {
            Some("cached") => Err(miette::miette!(
                help = "its file system has no O_DIRECT: take another, or a device",
                "the disk of plateway serve: expected one past the page cache, seen a cached one"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::plan::{Digests, Protocol};

    use super::*;

    fn served() -> Served {
        Served {
            driver: "io_uring".to_owned(),
            poll: Some("50us".to_owned()),
            access: Some("xdp".to_owned()),
            disk_access: Some("direct".to_owned()),
        }
    }

    #[test]
    fn what_is_not_as_the_plan_says_is_no_trial_of_it() {
        let plain = Serve {
            protocol: Protocol::Nvme,
            disk: "ram:1GiB".to_owned(),
            through: None,
            poll: None,
            shards: None,
            driver: None,
            digests: Digests::None,
            access: None,
        };
        let asked = Serve {
            poll: Some("50us".parse().unwrap()),
            driver: Some(Driver::IoUring),
            access: Some(Access::Xdp),
            ..plain.clone()
        };
        for good in [&plain, &asked, &Serve { driver: Some(Driver::Auto), ..plain.clone() }] {
            assert!(served().keeps(good).is_ok(), "{good:?}");
        }
        let said = |served: Served, asked: &Serve| served.keeps(asked).unwrap_err().to_string();
        let other = |change: fn(&mut Served)| {
            let mut other = served();
            change(&mut other);
            other
        };
        let words = said(other(|one| one.driver = "epoll".to_owned()), &asked);
        assert_eq!(words, "driver of plateway serve: expected io_uring, seen epoll");
        let words = said(other(|one| one.poll = Some("auto".to_owned())), &asked);
        assert_eq!(words, "poll of plateway serve: expected 50us, seen auto");
        let words = said(other(|one| one.access = Some("packet ring".to_owned())), &asked);
        assert_eq!(words, "access of plateway serve: expected xdp, seen packet ring");
        let words = said(other(|one| one.disk_access = Some("cached".to_owned())), &plain);
        assert!(words.contains("expected one past the page cache"), "{words}");
    }
}
