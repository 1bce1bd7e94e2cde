//! The lexer of filters: tokens, each with its position.

use super::FilterError;

/// One token: a word, a sign or quoted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterToken {
    /// The position, counted in characters from 1.
    pub at: usize,
    /// The kind of token, with its text.
    pub what: TokenKind,
}

/// The kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// A word without quotes.
    Word(String),
    /// Text in double quotes, without them.
    Quoted(String),
    /// The sign of a comparison.
    Operator(ComparisonOperator),
    /// An opening parenthesis.
    Open,
    /// A closing parenthesis.
    Close,
}

/// The sign of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperator {
    /// `=`: the figure is equal.
    Equal,
    /// `!=`: the figure is not equal.
    Unequal,
    /// `<`: the figure is less.
    Less,
    /// `<=`: the figure is less or equal.
    AtMost,
    /// `>`: the figure is greater.
    Greater,
    /// `>=`: the figure is greater or equal.
    AtLeast,
    /// `~`: the figure matches the pattern.
    Like,
    /// `!~`: the figure does not match the pattern.
    Unlike,
}

impl TokenKind {
    /// Returns the token for a message, much as it was written.
    pub fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", beginning(word)),
            Self::Quoted(text) => format!("\"{}\"", beginning(text)),
            Self::Operator(operator) => format!("`{}`", operator.sign()),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
        }
    }
}

impl ComparisonOperator {
    /// Returns the sign as it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::Like => "~",
            Self::Unlike => "!~",
        }
    }
}

/// Returns the beginning of a text of any length, short enough for a message.
pub fn beginning(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Splits a filter into its tokens.
pub fn tokens(text: &str) -> Result<Vec<FilterToken>, FilterError> {
    let mut found = Vec::new();
    let mut left = text.chars().zip(1..).peekable();
    while let Some((character, at)) = left.next() {
        let is_followed_by = |left: &mut std::iter::Peekable<_>, wanted: char| {
            left.next_if(|(next, _): &(char, usize)| *next == wanted).is_some()
        };
        let what = match character {
            _ if character.is_whitespace() => continue,
            '(' => TokenKind::Open,
            ')' => TokenKind::Close,
            '=' => {
                is_followed_by(&mut left, '=');
                TokenKind::Operator(ComparisonOperator::Equal)
            }
            '~' => TokenKind::Operator(ComparisonOperator::Like),
            '<' if is_followed_by(&mut left, '=') => TokenKind::Operator(ComparisonOperator::AtMost),
            '<' => TokenKind::Operator(ComparisonOperator::Less),
            '>' if is_followed_by(&mut left, '=') => TokenKind::Operator(ComparisonOperator::AtLeast),
            '>' => TokenKind::Operator(ComparisonOperator::Greater),
            '!' if is_followed_by(&mut left, '=') => TokenKind::Operator(ComparisonOperator::Unequal),
            '!' if is_followed_by(&mut left, '~') => TokenKind::Operator(ComparisonOperator::Unlike),
            '!' => {
                return Err(FilterError { at, why: "`!` stands before `=` or `~`; the opposite is `not`".into() });
            }
            '"' => TokenKind::Quoted(
                quoted(&mut left).ok_or_else(|| FilterError { at, why: "a quote has no end".into() })?,
            ),
            first => {
                let mut word = String::from(first);
                while let Some((next, _)) = left.next_if(|(next, _)| is_of_word(*next)) {
                    word.push(next);
                }
                TokenKind::Word(word)
            }
        };
        found.push(FilterToken { at, what });
    }
    Ok(found)
}

fn is_of_word(character: char) -> bool {
    !character.is_whitespace() && !matches!(character, '(' | ')' | '=' | '~' | '<' | '>' | '!' | '"')
}

/// Reads the text up to the closing quote. A backslash escapes the next character.
fn quoted(left: &mut impl Iterator<Item = (char, usize)>) -> Option<String> {
    let mut text = String::new();
    loop {
        match left.next()?.0 {
            '"' => return Some(text),
            '\\' => text.push(left.next()?.0),
            other => text.push(other),
        }
    }
}
