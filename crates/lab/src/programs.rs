//! Programs that work on files of their own, once, or until they are ended: what bonnie++, PostMark and pgbench print, as
//! values, and an external merge sort of ours.
//!
//! Each has a load of its own, of which a plan says the size, and tells rates. What they are asked for follows from the size alone, so that two systems of a
//! comparison are asked for the same. What is printed in any other way than a known version prints it is refused,
//! with what was expected and what was seen: a figure that is misread is worse than none.
//!
//! What deliberately does not live here: processes, pipes, clocks; when a piece of output came is told. Units:
//! bytes, seconds. For users: docs/plans.md, "Programs".

pub mod bonnie;
pub mod merge_sort;
pub mod pgbench;
pub mod postmark;
