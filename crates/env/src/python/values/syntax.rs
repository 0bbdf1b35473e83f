//! Parses Python's literals, containers, calls and arithmetic. Comparisons, lambdas, comprehensions
//! and f-strings with fields are syntax errors.

use super::raise::{Class, Raise};
use super::value::Value;

/// Maximum nesting depth, as in Python.
const DEEPEST: usize = 90;

/// Maximum number of operators in a text, and of attributes, indexes and calls beyond [`FREE_LINKS`]
/// of each value. They make a tree as deep as they are many, and evaluating a tree is recursive.
const MOST_LINKS: usize = 1000;
const FREE_LINKS: usize = 3;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A literal.
    Constant(Value),
    /// A name.
    Name(String),
    /// `value.name`
    Attribute(Box<Expression>, String),
    /// `function(arguments, name=argument)`
    Call(Box<Expression>, Vec<Expression>, Vec<(String, Expression)>),
    /// `[..]`
    List(Vec<Expression>),
    /// `(..)`
    Tuple(Vec<Expression>),
    /// `{..}` without values.
    Set(Vec<Expression>),
    /// `{key: value}`
    Dict(Vec<(Expression, Expression)>),
    /// `-value`
    Negative(Box<Expression>),
    /// `not value`
    Not(Box<Expression>),
    /// `left OPERATOR right`
    Binary(Operator, Box<Expression>, Box<Expression>),
    /// `value[index]`
    Subscript(Box<Expression>, Box<Expression>),
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `**`
    Power,
}

/// Parses like `eval`.
///
/// # Errors
/// Returns a `SyntaxError`.
pub fn parse(text: &str) -> Result<Expression, Raise> {
    let mut parser = Parser::new(text);
    let start = text.len() - text.trim_start_matches([' ', '\t']).len();
    parser.place = start;
    parser.blank();
    let expression = parser.tuple()?;
    while parser.text[parser.place..].starts_with(['\n', '\r']) {
        parser.place += 1;
        parser.blank();
    }
    match parser.peek() {
        None => Ok(expression),
        Some(closing @ (')' | ']' | '}')) => Err(parser.error(&format!("unmatched '{closing}'"))),
        Some(_) => Err(parser.invalid()),
    }
}

/// Returns the source of each call in a list `[f(..), g(..)]`.
///
/// # Errors
/// Returns a `SyntaxError` if the text is not a list of calls.
pub fn calls(text: &str) -> Result<Vec<&str>, Raise> {
    let mut parser = Parser::new(text);
    parser.blank();
    if parser.peek() != Some('[') {
        return Err(parser.invalid());
    }
    let open = parser.open();
    let mut found = Vec::new();
    while !matches!(parser.peek(), None | Some(']')) {
        let start = parser.place;
        if !matches!(parser.expression()?, Expression::Call(..)) {
            return Err(parser.invalid());
        }
        found.push(text[start..parser.place].trim_end());
        if !parser.take(",") {
            break;
        }
    }
    parser.close(open, ']')?;
    if parser.peek().is_some() { Err(parser.invalid()) } else { Ok(found) }
}

/// Parses a module of assignments `NAME = expression`.
///
/// # Errors
/// Returns a `SyntaxError` that names the line.
pub fn assignments(text: &str) -> Result<Vec<(String, Expression)>, Raise> {
    let mut parser = Parser::new(text);
    let mut found = Vec::new();
    loop {
        parser.inside = 1;
        parser.blank();
        parser.inside = 0;
        if parser.peek().is_none() {
            return Ok(found);
        }
        let name = parser.word().ok_or_else(|| parser.invalid())?.to_owned();
        if !parser.take("=") {
            return Err(parser.invalid());
        }
        found.push((name, parser.tuple()?));
    }
}

pub(super) struct Parser<'a> {
    text: &'a str,
    pub(super) place: usize,
    depth: usize,
    links: usize,
    /// Number of open brackets; newlines are allowed inside brackets.
    inside: usize,
}

fn starts_word(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, place: 0, depth: 0, links: 0, inside: 0 }
    }

    fn link(&mut self) -> Result<(), Raise> {
        self.links += 1;
        if self.links > MOST_LINKS { Err(self.error("too many nested parentheses")) } else { Ok(()) }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.place..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn error(&self, reason: &str) -> Raise {
        let line = self.text[..self.place].matches('\n').count() + 1;
        Raise::new(Class::Syntax, format!("{reason} (<string>, line {line})"))
    }

    pub(super) fn lines(&self) -> usize {
        self.text.matches('\n').count() + 1
    }

    pub(super) fn invalid(&self) -> Raise {
        self.error("invalid syntax")
    }

    /// Skips spaces; inside brackets, it also skips newlines and comments.
    pub(super) fn blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = if self.inside > 0 {
                rest.trim_start_matches([' ', '\t', '\u{c}', '\n', '\r'])
            } else {
                rest.trim_start_matches([' ', '\t', '\u{c}'])
            };
            self.place += rest.len() - trimmed.len();
            if trimmed.starts_with('#') {
                self.place += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(next) = trimmed.strip_prefix("\\\n") {
                self.place += trimmed.len() - next.len();
            } else {
                return;
            }
        }
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        if found {
            self.place += symbol.len();
            self.blank();
        }
        found
    }

    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if !rest.starts_with(starts_word) {
            return None;
        }
        let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
        self.place += end;
        self.blank();
        Some(&rest[..end])
    }

    fn tuple(&mut self) -> Result<Expression, Raise> {
        let first = self.expression()?;
        if self.peek() != Some(',') {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take(",") {
            if matches!(self.peek(), None | Some(')' | ']' | '}' | '\n')) {
                break;
            }
            items.push(self.expression()?);
        }
        Ok(Expression::Tuple(items))
    }

    fn expression(&mut self) -> Result<Expression, Raise> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("too many nested parentheses"));
        }
        let negated = self
            .rest()
            .strip_prefix("not")
            .is_some_and(|rest| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()));
        let expression = if negated {
            self.word();
            Expression::Not(Box::new(self.expression()?))
        } else {
            self.sum()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn sum(&mut self) -> Result<Expression, Raise> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.place += 1;
            self.blank();
            self.link()?;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, Raise> {
        let mut left = self.factor()?;
        loop {
            let rest = self.rest();
            let operator = match self.peek() {
                Some('*') if !rest.starts_with("**") => Operator::Multiply,
                Some('/') if !rest.starts_with("//") => Operator::Divide,
                _ => return Ok(left),
            };
            self.place += 1;
            self.blank();
            self.link()?;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Expression, Raise> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("too many nested parentheses"));
        }
        let factor = if self.take("-") {
            Expression::Negative(Box::new(self.factor()?))
        } else if self.take("+") {
            self.factor()?
        } else {
            let base = self.primary()?;
            if self.take("**") {
                Expression::Binary(Operator::Power, Box::new(base), Box::new(self.factor()?))
            } else {
                base
            }
        };
        self.depth -= 1;
        Ok(factor)
    }

    fn primary(&mut self) -> Result<Expression, Raise> {
        let mut value = self.atom()?;
        for links in 0.. {
            let next = self.peek();
            if links >= FREE_LINKS && matches!(next, Some('(' | '[' | '.')) {
                self.link()?;
            }
            value = match next {
                Some('(') => self.call(value)?,
                Some('[') => {
                    let open = self.open();
                    let index = self.tuple()?;
                    self.close(open, ']')?;
                    Expression::Subscript(Box::new(value), Box::new(index))
                }
                Some('.') => {
                    self.place += 1;
                    self.blank();
                    let name = self.word().ok_or_else(|| self.invalid())?.to_owned();
                    Expression::Attribute(Box::new(value), name)
                }
                _ => break,
            };
        }
        Ok(value)
    }

    fn open(&mut self) -> usize {
        let place = self.place;
        self.place += 1;
        self.inside += 1;
        self.blank();
        place
    }

    fn close(&mut self, open: usize, closing: char) -> Result<(), Raise> {
        match self.peek() {
            Some(found) if found == closing => {
                self.inside -= 1;
                self.place += 1;
                self.blank();
                Ok(())
            }
            None => {
                let bracket = &self.text[open..=open];
                self.place = open;
                Err(self.error(&format!("'{bracket}' was never closed")))
            }
            Some(found @ (')' | ']' | '}')) => {
                let bracket = &self.text[open..=open];
                Err(self.error(&format!(
                    "closing parenthesis '{found}' does not match opening parenthesis '{bracket}'"
                )))
            }
            Some(_) => Err(self.invalid()),
        }
    }

    fn call(&mut self, function: Expression) -> Result<Expression, Raise> {
        let open = self.open();
        let mut arguments = Vec::new();
        let mut keywords: Vec<(String, Expression)> = Vec::new();
        while !matches!(self.peek(), None | Some(')')) {
            let start = self.place;
            let keyword =
                self.word().filter(|_| self.rest().starts_with('=') && !self.rest().starts_with("=="));
            if let Some(name) = keyword {
                self.take("=");
                let name = name.to_owned();
                if keywords.iter().any(|(known, _)| *known == name) {
                    return Err(self.error(&format!("keyword argument repeated: {name}")));
                }
                keywords.push((name, self.expression()?));
            } else {
                self.place = start;
                let argument = self.expression()?;
                if !keywords.is_empty() {
                    return Err(self.error("positional argument follows keyword argument"));
                }
                arguments.push(argument);
            }
            if !self.take(",") {
                break;
            }
        }
        self.close(open, ')')?;
        Ok(Expression::Call(Box::new(function), arguments, keywords))
    }

    fn atom(&mut self) -> Result<Expression, Raise> {
        let Some(first) = self.peek() else { return Err(self.invalid()) };
        match first {
            '(' => {
                let open = self.open();
                if self.take(")") {
                    self.inside -= 1;
                    return Ok(Expression::Tuple(Vec::new()));
                }
                let inner = self.tuple()?;
                self.close(open, ')')?;
                Ok(inner)
            }
            '[' => {
                let open = self.open();
                let items = self.items(']')?;
                self.close(open, ']')?;
                Ok(Expression::List(items))
            }
            '{' => self.braces(),
            '\'' | '"' => self.strings(),
            '0'..='9' => self.number(),
            '.' if self.take("...") => {
                Ok(Expression::Constant(Value::Opaque { class: "ellipsis", repr: "Ellipsis".to_owned() }))
            }
            '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            _ if starts_word(first) => {
                let start = self.place;
                let name = self.word().unwrap_or_default();
                if self.text[start + name.len()..].starts_with(['\'', '"']) {
                    self.place = start;
                    return self.strings();
                }
                Ok(match name {
                    "None" => Expression::Constant(Value::None),
                    "True" => Expression::Constant(Value::Bool(true)),
                    "False" => Expression::Constant(Value::Bool(false)),
                    _ => Expression::Name(name.to_owned()),
                })
            }
            _ => Err(self.invalid()),
        }
    }

    fn items(&mut self, closing: char) -> Result<Vec<Expression>, Raise> {
        let mut items = Vec::new();
        while self.peek().is_some_and(|next| next != closing) {
            items.push(self.expression()?);
            if !self.take(",") {
                break;
            }
        }
        Ok(items)
    }

    fn braces(&mut self) -> Result<Expression, Raise> {
        let open = self.open();
        let mut pairs = Vec::new();
        let mut items = Vec::new();
        while !matches!(self.peek(), None | Some('}')) {
            let key = self.expression()?;
            if items.is_empty() && self.take(":") {
                pairs.push((key, self.expression()?));
            } else if pairs.is_empty() {
                items.push(key);
            } else {
                return Err(self.invalid());
            }
            if !self.take(",") {
                break;
            }
        }
        self.close(open, '}')?;
        Ok(if items.is_empty() { Expression::Dict(pairs) } else { Expression::Set(items) })
    }
}
