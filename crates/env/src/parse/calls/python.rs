//! Tool calls as a Python list with named arguments (Llama 3.2, Llama 4, BFCL).
//!
//! Values are Python literals, or JSON's `true`, `false` and `null`. Dictionary keys must be
//! strings. The text is not executed.

use serde_json::{Map, Number, Value};
use turnwise_core::ToolCall;

use super::json::spaced;

const DEEPEST: usize = 64;

type Read<T> = Result<T, &'static str>;

/// Parses a list of calls, such as `[f(a=1), g(b="x")]`, or one call without brackets.
pub(super) fn read(answer: &str) -> Read<Vec<ToolCall>> {
    let text = answer.trim();
    let text = text.strip_prefix("<|python_tag|>").unwrap_or(text).trim_start();
    let mut reader = Reader { rest: text, depth: 0 };
    let list = reader.take('[');
    let mut ahead = Reader { rest: reader.rest, depth: 0 };
    let begins = ahead.name().is_some() && ahead.take('(');
    if !begins || !(list || text.ends_with(')')) {
        return Ok(Vec::new());
    }
    let mut calls = vec![reader.call()?];
    if list {
        while reader.take(',') {
            if reader.peek() == Some(']') {
                break;
            }
            calls.push(reader.call()?);
        }
        if !reader.take(']') {
            return Err("the list of calls is not closed");
        }
    }
    if reader.rest.trim().is_empty() {
        Ok(calls)
    } else {
        Err("there is something other than a call after a call")
    }
}

pub(super) fn write(calls: &[ToolCall]) -> String {
    let call = |call: &ToolCall| {
        let arguments = call.arguments.as_object().into_iter().flatten();
        let arguments: Vec<String> =
            arguments.map(|(name, value)| format!("{name}={}", literal(value))).collect();
        format!("{}({})", call.name, arguments.join(", "))
    };
    format!("[{}]", calls.iter().map(call).collect::<Vec<_>>().join(", "))
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{}: {}", spaced(&Value::from(name.as_str())), literal(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Number(_) | Value::String(_) => spaced(value),
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, character: char) -> bool {
        let next = self.peek() == Some(character);
        if next {
            self.rest = &self.rest[character.len_utf8()..];
        }
        next
    }

    /// Parses a tool name, which may contain dots and hyphens.
    fn name(&mut self) -> Option<&'a str> {
        let begins = |character: char| character.is_alphabetic() || character == '_';
        self.peek().filter(|&first| begins(first))?;
        let within = |character: char| character.is_alphanumeric() || "_.-".contains(character);
        let end = self.rest.find(|character| !within(character)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(name)
    }

    fn call(&mut self) -> Read<ToolCall> {
        let name = self.name().ok_or("a call has no name")?;
        if !self.take('(') {
            return Err("there is something other than a call in the list");
        }
        let mut arguments = Map::new();
        while !self.take(')') {
            let argument = self.name().ok_or("an argument has no name")?;
            if !self.take('=') {
                return Err("an argument has no name");
            }
            let value = self.value()?;
            if arguments.insert(argument.to_owned(), value).is_some() {
                return Err("an argument is given twice");
            }
            if !self.take(',') && self.peek() != Some(')') {
                return Err("the arguments of a call are not closed");
            }
        }
        Ok(ToolCall { id: String::new(), name: name.to_owned(), arguments: Value::Object(arguments) })
    }

    fn value(&mut self) -> Read<Value> {
        if self.depth == DEEPEST {
            return Err("values are too deep inside of each other");
        }
        self.depth += 1;
        let value = match self.peek().ok_or("a value is missing")? {
            '[' => self.list('[', ']').map(|(values, _)| Value::Array(values)),
            '(' => self.list('(', ')').map(|(mut values, comma)| match values.len() {
                // Not a tuple without a comma.
                1 if !comma => values.remove(0),
                _ => Value::Array(values),
            }),
            '{' => self.dictionary(),
            '"' | '\'' => self.text().map(Value::String),
            first if first.is_ascii_digit() || "+-.".contains(first) => self.number(),
            _ => match self.name().unwrap_or_default() {
                "True" | "true" => Ok(Value::Bool(true)),
                "False" | "false" => Ok(Value::Bool(false)),
                "None" | "null" => Ok(Value::Null),
                _ => Err("a value is not a literal"),
            },
        };
        self.depth -= 1;
        value
    }

    fn list(&mut self, open: char, close: char) -> Read<(Vec<Value>, bool)> {
        self.take(open);
        let (mut values, mut comma) = (Vec::new(), false);
        while !self.take(close) {
            if !values.is_empty() && !comma {
                return Err("a list is not closed");
            }
            values.push(self.value()?);
            comma = self.take(',');
        }
        Ok((values, comma))
    }

    fn dictionary(&mut self) -> Read<Value> {
        self.take('{');
        let (mut fields, mut comma) = (Map::new(), true);
        while !self.take('}') {
            if !comma {
                return Err("a dictionary is not closed");
            }
            let Value::String(key) = self.value()? else { return Err("a key of a dictionary is not a text") };
            if !self.take(':') {
                return Err("a key of a dictionary has no value");
            }
            fields.insert(key, self.value()?);
            comma = self.take(',');
        }
        Ok(Value::Object(fields))
    }

    fn number(&mut self) -> Read<Value> {
        let within = |character: char| character.is_ascii_alphanumeric() || "+-._".contains(character);
        let end = self.rest.find(|character| !within(character)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let text = text.replace('_', "");
        let text = text.strip_prefix('+').unwrap_or(&text);
        let digits = text.strip_prefix('-').unwrap_or(text);
        if let Ok(number) = text.parse::<i64>() {
            return Ok(number.into());
        }
        if let Ok(number) = text.parse::<u64>() {
            return Ok(number.into());
        }
        // Rust also parses `inf` and `nan`.
        let written = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        let number = text.parse::<f64>().ok().filter(|_| written).and_then(Number::from_f64);
        number.map(Value::Number).ok_or("a number cannot be read")
    }

    /// Parses a string; adjacent string literals are concatenated, as in Python.
    fn text(&mut self) -> Read<String> {
        let mut text = String::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            let long = [quote; 3].iter().collect::<String>();
            let end = if self.rest.starts_with(&long) { long } else { quote.to_string() };
            self.rest = &self.rest[end.len()..];
            loop {
                if let Some(rest) = self.rest.strip_prefix(end.as_str()) {
                    self.rest = rest;
                    break;
                }
                let mut characters = self.rest.chars();
                let next = characters.next().ok_or("a text is not closed")?;
                self.rest = characters.as_str();
                match next {
                    '\n' if end.len() == 1 => return Err("a text is not closed"),
                    '\\' => self.escaped(&mut text)?,
                    _ => text.push(next),
                }
            }
        }
        Ok(text)
    }

    /// Parses an escape sequence; unknown sequences keep their backslash.
    fn escaped(&mut self, text: &mut String) -> Read<()> {
        let mut characters = self.rest.chars();
        let kind = characters.next().ok_or("a text is not closed")?;
        self.rest = characters.as_str();
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        match kind {
            '\n' => {}
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '\\' | '\'' | '"' => text.push(kind),
            'x' | 'u' | 'U' => {
                let all = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let number = self.rest.get(..digits).filter(all);
                let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                text.push(number.and_then(char::from_u32).ok_or("an escape in a text cannot be read")?);
                self.rest = &self.rest[digits..];
            }
            '0'..='7' => {
                let more = self.rest.bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let octal = format!("{kind}{}", &self.rest[..more]);
                text.extend(u32::from_str_radix(&octal, 8).ok().and_then(char::from_u32));
                self.rest = &self.rest[more..];
            }
            _ => text.extend(['\\', kind]),
        }
        Ok(())
    }
}
