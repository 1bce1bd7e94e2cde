//! The parser of filters: from tokens to an expression.

use std::cmp::Ordering;

use wildmatch::WildMatch;

use super::amount::{ExactNumber, is_unit};
use super::lexer::{ComparisonOperator, FilterToken, TokenKind, beginning, tokens};
use super::test::FigureTest;
use super::{FilterError, FilterExpression};
use crate::field::{FigureDescription, FigureType, FigureUnit};
use crate::figures::{ModelFigure, find};

/// The deepest nesting of parentheses and `not`. More is refused, so that the stack does not overflow.
const DEEPEST: usize = 64;

/// Parses an expression over the figures of `table`.
pub fn parse<M>(text: &str, table: &'static [ModelFigure<M>]) -> Result<FilterExpression<M>, FilterError> {
    let end = text.chars().count() + 1;
    let mut parser = FilterParser { tokens: tokens(text)?, next: 0, end, table };
    let whole = parser.any(0)?;
    match parser.peek() {
        None => Ok(whole),
        Some(token) => parser.refuse(token.at, format!("{} stands where `and` or `or` would", token.what.shown())),
    }
}

struct FilterParser<M: 'static> {
    tokens: Vec<FilterToken>,
    next: usize,
    end: usize,
    table: &'static [ModelFigure<M>],
}

impl<M> FilterParser<M> {
    fn peek(&self) -> Option<&FilterToken> {
        self.tokens.get(self.next)
    }

    fn next_token(&mut self) -> Option<FilterToken> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let is_there =
            matches!(self.peek(), Some(FilterToken { what: TokenKind::Word(word), .. }) if word == wanted);
        self.next += usize::from(is_there);
        is_there
    }

    fn refuse<T>(&self, at: usize, why: impl Into<String>) -> Result<T, FilterError> {
        Err(FilterError { at, why: why.into() })
    }

    fn any(&mut self, depth: usize) -> Result<FilterExpression<M>, FilterError> {
        let mut parts = vec![self.all(depth)?];
        while self.takes_word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(FilterExpression::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<FilterExpression<M>, FilterError> {
        let mut parts = vec![self.term(depth)?];
        while self.takes_word("and") {
            parts.push(self.term(depth)?);
        }
        Ok(FilterExpression::All(parts))
    }

    fn term(&mut self, depth: usize) -> Result<FilterExpression<M>, FilterError> {
        let Some(token) = self.next_token() else {
            return self.refuse(self.end, "a comparison is missing, such as saved>1G");
        };
        if depth > DEEPEST {
            return self.refuse(token.at, format!("more than {DEEPEST} parentheses or `not` in each other"));
        }
        match token.what {
            TokenKind::Open => {
                let inner = self.any(depth + 1)?;
                match self.next_token() {
                    Some(FilterToken { what: TokenKind::Close, .. }) => Ok(inner),
                    Some(other) => self.refuse(other.at, format!("{} stands where `)` would", other.what.shown())),
                    None => self.refuse(self.end, format!("the parenthesis at character {} has no end", token.at)),
                }
            }
            TokenKind::Word(word) if word == "not" => Ok(FilterExpression::Not(Box::new(self.term(depth + 1)?))),
            TokenKind::Word(word) => self.comparison(&word, token.at),
            other => self.refuse(token.at, format!("{} stands where the name of a figure would", other.shown())),
        }
    }

    fn comparison(&mut self, name: &str, at: usize) -> Result<FilterExpression<M>, FilterError> {
        let Some(figure) = find(self.table, name) else {
            let known: Vec<&str> = self.table.iter().map(|figure| figure.field.name).collect();
            let name = beginning(name);
            return self.refuse(at, format!("there is no figure `{name}`; known are {}", known.join(", ")));
        };
        let Some(FilterToken { what: TokenKind::Operator(operator), at: sign_at }) = self.peek().cloned() else {
            return match figure.field.holds {
                FigureType::Flag => Ok(FilterExpression::Compare(figure, FigureTest::Flag(true))),
                _ => self.refuse(
                    at + name.chars().count(),
                    format!("{name} needs a comparison, such as {}", example(&figure.field)),
                ),
            };
        };
        self.next += 1;
        let Some(value) = self.next_token() else { return self.refuse(self.end, "the value is missing") };
        let test = match &value.what {
            TokenKind::Word(word) if word == "-" => Some(FigureTest::Unknown),
            TokenKind::Word(word) => {
                let text = self.with_unit(word, figure.field.unit);
                test(&figure.field, operator, &text)
            }
            TokenKind::Quoted(text) => test(&figure.field, operator, text),
            other => return self.refuse(value.at, format!("{} stands where a value would", other.shown())),
        };
        let Some(test) = test else {
            let (shown, example) = (value.what.shown(), example(&figure.field));
            return self
                .refuse(value.at, format!("{shown} is not a value of {name}, which is compared as in {example}"));
        };
        let has_sign = match (&test, operator) {
            (FigureTest::Number(..), ComparisonOperator::Like | ComparisonOperator::Unlike) => false,
            (FigureTest::Number(..), _) | (_, ComparisonOperator::Equal | ComparisonOperator::Unequal) => true,
            (FigureTest::Pattern(_), ComparisonOperator::Like | ComparisonOperator::Unlike) => true,
            _ => false,
        };
        if !has_sign {
            let (sign, example) = (operator.sign(), example(&figure.field));
            return self
                .refuse(sign_at, format!("`{sign}` does not go with {name}, which is compared as in {example}"));
        }
        Ok(FilterExpression::Compare(
            figure,
            match operator {
                ComparisonOperator::Unequal | ComparisonOperator::Unlike => FigureTest::Not(Box::new(test)),
                _ => test,
            },
        ))
    }

    /// Returns the number with the unit that stands apart from it: `100 MiB`.
    fn with_unit(&mut self, word: &str, unit: FigureUnit) -> String {
        let is_number = word.ends_with(|c: char| c.is_ascii_digit());
        match self.peek() {
            Some(FilterToken { what: TokenKind::Word(next), .. })
                if unit == FigureUnit::Bytes && is_number && is_unit(next) =>
            {
                let whole = format!("{word}{next}");
                self.next += 1;
                whole
            }
            _ => word.to_owned(),
        }
    }
}

/// Makes the test of a value as it was written; `None` if the figure has no such value.
fn test(field: &FigureDescription, operator: ComparisonOperator, text: &str) -> Option<FigureTest> {
    use Ordering::{Equal, Greater, Less};

    match field.holds {
        FigureType::Unsigned | FigureType::Signed | FigureType::Real => {
            let orderings: &[Ordering] = match operator {
                ComparisonOperator::Less => &[Less],
                ComparisonOperator::AtMost => &[Less, Equal],
                ComparisonOperator::Greater => &[Greater],
                ComparisonOperator::AtLeast => &[Greater, Equal],
                _ => &[Equal],
            };
            Some(FigureTest::Number(orderings, ExactNumber::parse(text, field.unit)?))
        }
        FigureType::Flag => match text {
            "yes" | "true" => Some(FigureTest::Flag(true)),
            "no" | "false" => Some(FigureTest::Flag(false)),
            _ => None,
        },
        FigureType::Text if matches!(operator, ComparisonOperator::Like | ComparisonOperator::Unlike) => {
            Some(FigureTest::Pattern(WildMatch::new(text)))
        }
        FigureType::Text => Some(FigureTest::Text(text.to_owned())),
    }
}

/// Returns a comparison of the figure as an example.
fn example(field: &FigureDescription) -> String {
    let name = field.name;
    match (field.holds, field.unit) {
        (FigureType::Flag, _) => format!("{name}=yes"),
        (FigureType::Text, _) => format!("{name}=word or {name}~word*"),
        (_, FigureUnit::Bytes | FigureUnit::BytesPerSecond) => format!("{name}>100MiB"),
        _ => format!("{name}>10"),
    }
}
