//! Values of a kind that shards hold copies of, on a host of one shard: what is proposed is stored,
//! comes into force and is answered, as the test wants it.

use core::fmt::{Debug, Display};
use core::str::FromStr;

use block::ShardId;
use reservation::Value;
use reservation::replica::{Answer, Replicas};

/// Answers to proposals, by number.
pub type Answers<V> = Vec<(u64, Answer<<V as Value>::Answer, V>)>;

/// The values, by key.
#[derive(Debug)]
pub struct Agreement<V: Value> {
    replicas: Replicas<V>,
    /// What was given to be stored.
    pub stored: Vec<String>,
}

impl<V: Value> Default for Agreement<V> {
    fn default() -> Self {
        Agreement { replicas: Replicas::new(ShardId(0), 1), stored: Vec::new() }
    }
}

impl<V: Value + Display + FromStr<Err: Debug>> Agreement<V> {
    pub fn add(&mut self, key: u32, value: V) {
        self.replicas.add(key, value);
    }

    pub fn propose(&mut self, key: u32, number: u64, change: V::Change) {
        self.replicas.propose(key, number, change);
    }

    /// Stores what is to be stored, or fails to, and has `install` put values in force. Where that
    /// says that something is below still that the value forbids, it is asked again the next time.
    /// Returns the answers that came; `None` if nothing happened.
    pub fn settle(
        &mut self,
        stores: bool,
        mut install: impl FnMut(u32, &V) -> bool,
    ) -> Option<Answers<V>> {
        let mut moved = !self.replicas.outbox.answers.is_empty();
        loop {
            let out = &mut self.replicas.outbox;
            if let Some((key, version, value)) = out.store.pop() {
                let text = value.to_string();
                let read_back = text.parse::<V>().expect("it is read back");
                assert_eq!(read_back.to_string(), text);
                self.stored.push(text);
                self.replicas.handle_stored(key, version, stores);
            } else if let Some(at) = out.install.iter().position(|(key, _, v)| install(*key, v)) {
                let (key, version, _) = out.install.remove(at);
                self.replicas.installed(key, version);
            } else {
                return moved.then(|| core::mem::take(&mut out.answers));
            }
            moved = true;
        }
    }
}
