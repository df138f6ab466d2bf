//! What a session tells whoever relies on it.
//!
//! A session holds what it has to tell, and no queue: what began and ended before anybody asked is
//! not told, so that there is never more to tell than one event of each kind.

use wire::bfd::Diagnostic;

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both ends hear each other.
    Up,
    /// They no longer do, or one of them is to think so: why, as the peer is told.
    Down(Diagnostic),
    /// The session hears a peer, of which it has not heard before.
    FirstHeard,
    /// The peer goes by another discriminator than the last that was heard, after whatever silence: it
    /// began anew.
    DiscriminatorChanged,
}

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Whether the last that was told of Up and Down is Up.
    is_told_up: bool,
    is_up: bool,
    /// Why it is no longer as up as was told.
    down: Option<Diagnostic>,
    /// That the peer is another one than before, or the first.
    peer: Option<Event>,
}

impl News {
    pub(crate) fn up(&mut self) {
        self.is_up = true;
    }

    pub(crate) fn down(&mut self, diagnostic: Diagnostic) {
        self.is_up = false;
        if self.is_told_up {
            self.down = Some(diagnostic);
        }
    }

    pub(crate) fn peer_changed(&mut self, is_first: bool) {
        let event = if is_first { Event::FirstHeard } else { Event::DiscriminatorChanged };
        self.peer = Some(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peer.is_none() && self.down.is_none() && self.is_told_up == self.is_up
    }

    /// The next to tell.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        if let Some(event) = self.peer.take() {
            return Some(event);
        }
        if let Some(diagnostic) = self.down.take() {
            self.is_told_up = false;
            return Some(Event::Down(diagnostic));
        }
        if self.is_told_up == self.is_up {
            return None;
        }
        self.is_told_up = true;
        Some(Event::Up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_before_anybody_asked_is_not_told() {
        let mut news = News::default();
        news.up();
        news.down(Diagnostic::PATH_DOWN);
        assert!(news.is_empty());
        assert_eq!(news.pop(), None);
    }

    #[test]
    fn who_was_told_up_is_told_of_the_last_end_and_of_the_next_beginning() {
        let mut news = News::default();
        news.up();
        assert_eq!((news.pop(), news.pop()), (Some(Event::Up), None));
        news.down(Diagnostic::PATH_DOWN);
        news.up();
        news.down(Diagnostic::NEIGHBOR_SIGNALED_DOWN);
        news.peer_changed(false);
        news.up();
        assert!(!news.is_empty());
        assert_eq!(news.pop(), Some(Event::DiscriminatorChanged));
        assert_eq!(news.pop(), Some(Event::Down(Diagnostic::NEIGHBOR_SIGNALED_DOWN)));
        assert_eq!(news.pop(), Some(Event::Up));
        assert_eq!((news.pop(), news.is_empty()), (None, true));
    }
}
