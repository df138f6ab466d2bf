//! Programs of others' making that work on files: what bonnie++ and PostMark print, as values.
//!
//! Each has a load of its own, which a plan only says the size of, runs once from its beginning to its end, and
//! tells rates of its parts. What they are asked for follows from the size alone, so that two systems of a
//! comparison are asked for the same. What is printed in any other way than a known version prints it is refused,
//! with what was expected and what was seen: a figure that is misread is worse than none.
//!
//! What deliberately does not live here: processes, pipes, clocks; when a piece of output came is told. Units:
//! bytes, seconds. For users: docs/plans.md, "Bonnie++ and PostMark".

pub mod bonnie;
pub mod postmark;
