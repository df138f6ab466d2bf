//! The targets of shards.
