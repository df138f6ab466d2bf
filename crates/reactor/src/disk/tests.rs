//! Rules of opening, locking and of the facts.
