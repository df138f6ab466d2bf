//! What a node of a fencer has to be told of the deeds of others, and what it may be told.
//!
//! What surely concerns it, since it was there all the time, it has to hear; what may concern it, since
//! a change was lost or it came late, it may. SCSI keeps each kind once, as a unit attention; NVMe
//! each one, in a log. All of it ends with the node's session. Errors: it was told what nobody did.

use wire::scsi::AdditionalSense;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Debts {
    owed: Vec<AdditionalSense>,
    maybe: Vec<AdditionalSense>,
    /// Whether the node's session is younger than the change that is asked for.
    is_fresh: bool,
}

impl Debts {
    /// A change is asked for by somebody, which may tell it these.
    pub(super) fn begin(&mut self, told: impl Iterator<Item = AdditionalSense>, is_live: bool) {
        self.is_fresh = !is_live;
        self.maybe.extend(told);
    }

    /// The session is gone; its next may be told these, of what is being decided on.
    pub(super) fn lost(&mut self, told: impl Iterator<Item = AdditionalSense>) {
        (self.is_fresh, self.maybe) = (true, told.collect());
        self.owed.clear();
    }

    /// The change was answered, and told it this for certain.
    pub(super) fn owe(&mut self, code: AdditionalSense, is_kept_once: bool) {
        // Without a session all the time nobody is surely told.
        if self.is_fresh || (is_kept_once && self.owed.contains(&code)) {
            return;
        }
        match is_kept_once {
            true => self.maybe.retain(|maybe| *maybe != code),
            false => drop(take(&mut self.maybe, code)),
        }
        self.owed.push(code);
    }

    /// It heard something.
    pub(super) fn hear(&mut self, code: AdditionalSense) -> Result<(), String> {
        let is_due = take(&mut self.owed, code) || take(&mut self.maybe, code);
        if is_due { Ok(()) } else { Err(format!("a fencer was told {code}, which nobody did")) }
    }

    /// It heard all that there is.
    pub(super) fn heard_all(&self) -> Result<(), String> {
        match self.owed.as_slice() {
            [] => Ok(()),
            owed => Err(format!("a fencer is not told {owed:?}")),
        }
    }

    /// What it may be told it was told by now, or will never be.
    pub(super) fn settle(&mut self) {
        self.maybe.clear();
    }
}

/// Takes one of these out.
fn take(codes: &mut Vec<AdditionalSense>, code: AdditionalSense) -> bool {
    let found = codes.iter().position(|one| *one == code);
    found.map(|at| codes.remove(at)).is_some()
}
