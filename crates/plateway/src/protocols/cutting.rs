//! What `dissect` has in common of protocols on connections: one direction's stream is cut into
//! PDUs, of which only the beginning is kept, so that memory is bounded.
//!
//! Where PDUs begin is lost when bytes are missing from the capture, or when it begins within one;
//! then it goes on at the next segment that begins with one, since a PDU rarely begins elsewhere
//! once a sender has paused. What is no PDU is said.

use crate::commands::dissect::Said;

/// What the front of a PDU tells.
#[derive(Debug)]
pub(super) enum Front {
    /// So many bytes from its beginning are needed to tell more.
    Needs(usize),
    /// How long it is, and how much of it is to be kept.
    Is { kept: usize, length: u64 },
    /// It is none: what was seen instead.
    None(String),
}

/// One direction's stream on its way to PDUs.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// The beginning of the PDU that is being received.
    head: Vec<u8>,
    /// Bytes of it that come and are not kept.
    skip: u64,
    /// Where PDUs begin is not known: look at the next segment.
    lost: bool,
}

impl Cutter {
    /// The beginning of the next PDU, once it is there; what follows of it is passed over. `read`
    /// is given what is there of a PDU from its first byte on, and what of the segment comes behind
    /// that.
    pub(super) fn cut(
        &mut self,
        rest: &mut &[u8],
        said: &mut Vec<Said>,
        mut read: impl FnMut(&[u8], &[u8]) -> Front,
    ) -> Option<Vec<u8>> {
        let passed = self.skip.min(rest.len() as u64);
        self.skip -= passed;
        *rest = &rest[passed as usize..];
        if self.skip > 0 || rest.is_empty() {
            return None;
        }
        if self.lost {
            if !is_begun_by(rest, &mut read) {
                *rest = &[];
                return None;
            }
            self.lost = false;
        }
        loop {
            match read(&self.head, rest) {
                Front::Needs(bytes) => {
                    self.fill(rest, bytes);
                    if self.head.len() < bytes {
                        return None;
                    }
                }
                Front::Is { kept, length } => {
                    self.fill(rest, kept);
                    if self.head.len() < kept {
                        return None;
                    }
                    self.skip = length - kept as u64;
                    return Some(std::mem::take(&mut self.head));
                }
                Front::None(seen) => {
                    let text = format!(
                        "expected a PDU, seen {seen}: passed over to the next segment that begins with one"
                    );
                    said.push(Said { text, ..Said::default() });
                    self.lose();
                    *rest = &[];
                    return None;
                }
            }
        }
    }

    fn fill(&mut self, rest: &mut &[u8], wanted: usize) {
        let more = wanted.saturating_sub(self.head.len()).min(rest.len());
        self.head.extend_from_slice(&rest[..more]);
        *rest = &rest[more..];
    }

    /// Bytes that were sent and are not there.
    pub(super) fn pass(&mut self, missing: u64, said: &mut Vec<Said>) {
        if missing == 0 {
            return;
        }
        if self.head.is_empty() && missing <= self.skip {
            self.skip -= missing;
            return;
        }
        if !self.lost && !self.head.is_empty() {
            let text = "a PDU is cut off by the capture".to_owned();
            said.push(Said { text, ..Said::default() });
        }
        self.lose();
    }

    fn lose(&mut self) {
        self.head.clear();
        self.skip = 0;
        self.lost = true;
    }
}

/// Whether a segment begins with a PDU, as far as its front tells.
fn is_begun_by(segment: &[u8], read: &mut impl FnMut(&[u8], &[u8]) -> Front) -> bool {
    let Front::Needs(bytes) = read(&[], segment) else { return false };
    let Some((front, behind)) = segment.split_at_checked(bytes) else { return false };
    !matches!(read(front, behind), Front::None(_))
}
