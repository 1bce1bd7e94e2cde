//! The parser of filters: from tokens to an expression.

use std::cmp::Ordering;

use wildmatch::WildMatch;

use super::amount::{Amount, is_unit};
use super::lexer::{Operator, Token, What, beginning, tokens};
use super::test::Test;
use super::{Expression, FilterError};
use crate::field::{Field, Type, Unit};
use crate::figures::{Figure, find};

/// The deepest nesting of parentheses and `not`. More is refused, so that the stack does not overflow.
const DEEPEST: usize = 64;

/// Parses an expression over the figures of `table`.
pub fn parse<M>(text: &str, table: &'static [Figure<M>]) -> Result<Expression<M>, FilterError> {
    let end = text.chars().count() + 1;
    let mut parser = Parser { tokens: tokens(text)?, next: 0, end, table };
    let whole = parser.any(0)?;
    match parser.peek() {
        None => Ok(whole),
        Some(token) => parser.refuse(token.at, format!("{} stands where `and` or `or` would", token.what.shown())),
    }
}

struct Parser<M: 'static> {
    tokens: Vec<Token>,
    next: usize,
    end: usize,
    table: &'static [Figure<M>],
}

impl<M> Parser<M> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn takes_word(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token { what: What::Word(word), .. }) if word == wanted);
        self.next += usize::from(is_there);
        is_there
    }

    fn refuse<T>(&self, at: usize, why: impl Into<String>) -> Result<T, FilterError> {
        Err(FilterError { at, why: why.into() })
    }

    fn any(&mut self, depth: usize) -> Result<Expression<M>, FilterError> {
        let mut parts = vec![self.all(depth)?];
        while self.takes_word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(Expression::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<Expression<M>, FilterError> {
        let mut parts = vec![self.term(depth)?];
        while self.takes_word("and") {
            parts.push(self.term(depth)?);
        }
        Ok(Expression::All(parts))
    }

    fn term(&mut self, depth: usize) -> Result<Expression<M>, FilterError> {
        let Some(token) = self.take() else {
            return self.refuse(self.end, "a comparison is missing, such as saved>1G");
        };
        if depth > DEEPEST {
            return self.refuse(token.at, format!("more than {DEEPEST} parentheses or `not` in each other"));
        }
        match token.what {
            What::Open => {
                let inner = self.any(depth + 1)?;
                match self.take() {
                    Some(Token { what: What::Close, .. }) => Ok(inner),
                    Some(other) => self.refuse(other.at, format!("{} stands where `)` would", other.what.shown())),
                    None => self.refuse(self.end, format!("the parenthesis at character {} has no end", token.at)),
                }
            }
            What::Word(word) if word == "not" => Ok(Expression::Not(Box::new(self.term(depth + 1)?))),
            What::Word(word) => self.comparison(&word, token.at),
            other => self.refuse(token.at, format!("{} stands where the name of a figure would", other.shown())),
        }
    }

    fn comparison(&mut self, name: &str, at: usize) -> Result<Expression<M>, FilterError> {
        let Some(figure) = find(self.table, name) else {
            let known: Vec<&str> = self.table.iter().map(|figure| figure.field.name).collect();
            let name = beginning(name);
            return self.refuse(at, format!("there is no figure `{name}`; known are {}", known.join(", ")));
        };
        let Some(Token { what: What::Operator(operator), at: sign_at }) = self.peek().cloned() else {
            return match figure.field.holds {
                Type::Flag => Ok(Expression::Compare(figure, Test::Flag(true))),
                _ => self.refuse(
                    at + name.chars().count(),
                    format!("{name} needs a comparison, such as {}", example(&figure.field)),
                ),
            };
        };
        self.next += 1;
        let Some(value) = self.take() else { return self.refuse(self.end, "the value is missing") };
        let test = match &value.what {
            What::Word(word) if word == "-" => Some(Test::Unknown),
            What::Word(word) => {
                let text = self.with_unit(word, figure.field.unit);
                test(&figure.field, operator, &text)
            }
            What::Quoted(text) => test(&figure.field, operator, text),
            other => return self.refuse(value.at, format!("{} stands where a value would", other.shown())),
        };
        let Some(test) = test else {
            let (shown, example) = (value.what.shown(), example(&figure.field));
            return self
                .refuse(value.at, format!("{shown} is no value of {name}, which is compared as in {example}"));
        };
        let has_sign = match (&test, operator) {
            (Test::Number(..), Operator::Like | Operator::Unlike) => false,
            (Test::Number(..), _) | (_, Operator::Equal | Operator::Unequal) => true,
            (Test::Pattern(_), Operator::Like | Operator::Unlike) => true,
            _ => false,
        };
        if !has_sign {
            let (sign, example) = (operator.sign(), example(&figure.field));
            return self
                .refuse(sign_at, format!("`{sign}` does not go with {name}, which is compared as in {example}"));
        }
        Ok(Expression::Compare(
            figure,
            match operator {
                Operator::Unequal | Operator::Unlike => Test::Not(Box::new(test)),
                _ => test,
            },
        ))
    }

    /// Returns the number with the unit that stands apart from it: `100 MiB`.
    fn with_unit(&mut self, word: &str, unit: Unit) -> String {
        let is_number = word.ends_with(|c: char| c.is_ascii_digit());
        match self.peek() {
            Some(Token { what: What::Word(next), .. }) if unit == Unit::Bytes && is_number && is_unit(next) => {
                let whole = format!("{word}{next}");
                self.next += 1;
                whole
            }
            _ => word.to_owned(),
        }
    }
}

/// Makes the test of a value as it was written; `None` if the figure has no such value.
fn test(field: &Field, operator: Operator, text: &str) -> Option<Test> {
    use Ordering::{Equal, Greater, Less};

    match field.holds {
        Type::Unsigned | Type::Signed | Type::Real => {
            let orderings: &[Ordering] = match operator {
                Operator::Less => &[Less],
                Operator::AtMost => &[Less, Equal],
                Operator::Greater => &[Greater],
                Operator::AtLeast => &[Greater, Equal],
                _ => &[Equal],
            };
            Some(Test::Number(orderings, Amount::parse(text, field.unit)?))
        }
        Type::Flag => match text {
            "yes" | "true" => Some(Test::Flag(true)),
            "no" | "false" => Some(Test::Flag(false)),
            _ => None,
        },
        Type::Text if matches!(operator, Operator::Like | Operator::Unlike) => {
            Some(Test::Pattern(WildMatch::new(text)))
        }
        Type::Text => Some(Test::Text(text.to_owned())),
    }
}

/// Returns a comparison of the figure as an example.
fn example(field: &Field) -> String {
    let name = field.name;
    match (field.holds, field.unit) {
        (Type::Flag, _) => format!("{name}=yes"),
        (Type::Text, _) => format!("{name}=word or {name}~word*"),
        (_, Unit::Bytes | Unit::BytesPerSecond) => format!("{name}>100MiB"),
        _ => format!("{name}>10"),
    }
}
