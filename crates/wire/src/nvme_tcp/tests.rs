//! Vectors, round trips and refusals.
