//! The reason for a decision, on two levels: a short line for people, and the arithmetic behind it.

use std::fmt;

/// The reason for a decision. Its alternate form, `{:#}`, has the arithmetic too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionReason {
    /// The state of the policy in one word: `burst`, `parked`, `boost`. Stable, for machines and columns.
    pub state: &'static str,
    /// The short line: `the last scan found little new; next look in 35 s`.
    pub text: String,
    /// The arithmetic: `burst: 2.00 MiB saved in 0.80 CPU-s (2.5 MiB/CPU-s, price 8.0)`. `None` where the line says all.
    pub detail: Option<String>,
}

impl DecisionReason {
    /// Creates a reason from its state and its short line.
    pub fn new(state: &'static str, text: impl Into<String>) -> Self {
        Self { state, text: text.into(), detail: None }
    }

    /// Creates a reason from its state and sentences on both levels.
    pub(crate) fn from_sentences(state: &'static str, sentences: ReasonSentences) -> Self {
        let ReasonSentences { text, detail } = sentences;
        Self { state, text, detail }
    }

    /// Returns the reason with arithmetic behind its own.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = join(self.detail.take(), Some(detail.into()));
        self
    }
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.state, self.text)?;
        match &self.detail {
            Some(detail) if f.alternate() => write!(f, " ({detail})"),
            _ => Ok(()),
        }
    }
}

/// Sentences of a reason, before the state is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReasonSentences {
    /// The short line.
    pub text: String,
    /// The arithmetic, if there is any.
    pub detail: Option<String>,
}

impl ReasonSentences {
    /// Creates a short line without arithmetic.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), detail: None }
    }

    /// Creates a short line with its arithmetic.
    pub fn detailed(text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { text: text.into(), detail: Some(detail.into()) }
    }

    /// Returns the sentences with arithmetic behind their own.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = join(self.detail.take(), Some(detail.into()));
        self
    }

    /// Returns these sentences followed by others, level by level.
    #[must_use]
    pub fn followed_by(self, next: Self) -> Self {
        Self { text: format!("{}; {}", self.text, next.text), detail: join(self.detail, next.detail) }
    }
}

/// Joins arithmetic, where both are there.
fn join(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}; {second}")),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_stands_apart_from_the_line_for_people() {
        let plain = DecisionReason::new("parked", "memory is plentiful");
        assert_eq!(
            (plain.to_string(), format!("{plain:#}")),
            ("parked: memory is plentiful".to_owned(), plain.to_string())
        );
        let reason = plain.with_detail("60 % is available").with_detail("limits: run=0");
        assert_eq!(reason.to_string(), "parked: memory is plentiful");
        assert_eq!(format!("{reason:#}"), "parked: memory is plentiful (60 % is available; limits: run=0)");
    }

    #[test]
    fn sentences_follow_each_other_on_their_own_level() {
        let first = ReasonSentences::detailed("one", "1 + 1");
        let both = first.clone().followed_by(ReasonSentences::plain("two"));
        assert_eq!(both, ReasonSentences::detailed("one; two", "1 + 1"));
        let both = ReasonSentences::plain("two").followed_by(first.clone()).followed_by(first);
        assert_eq!(both, ReasonSentences::detailed("two; one; one", "1 + 1; 1 + 1"));
    }
}
