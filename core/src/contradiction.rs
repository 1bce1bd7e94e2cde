//! Settings that are valid alone and contradict each other.

/// Two or more settings that contradict each other, or one that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The paths of the keys, the one to change first: `["balance", "rule", "0", "floor_mib"]`.
    pub keys: Vec<Vec<String>>,
    /// The fault in a sentence, with what to do.
    pub message: String,
}

impl Contradiction {
    /// Makes one of the paths of its keys and a sentence.
    pub fn new(keys: &[&[&str]], message: impl Into<String>) -> Self {
        let owned = |key: &&[&str]| key.iter().map(ToString::to_string).collect();
        Self { keys: keys.iter().map(owned).collect(), message: message.into() }
    }
}
