//! Rules of work on files.
