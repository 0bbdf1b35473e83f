//! Computes tokens in postfix order.

use std::collections::BTreeMap;

use crate::lexer::Token;

/// Values by name.
pub type Names = BTreeMap<String, i64>;

/// Why a formula has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Empty,
    Letter(char),
    Name(String),
    Operand,
    Overflow,
    Parenthesis,
    Zero,
}

/// Returns the value of tokens in postfix order.
pub fn run(tokens: &[Token], names: &Names) -> Result<i64, Fault> {
    let mut stack: Vec<i64> = Vec::new();
    for token in tokens {
        let value = match token {
            Token::Number(value) => *value,
            Token::Name(name) => *names.get(name).ok_or_else(|| Fault::Name(name.clone()))?,
            Token::Negate => stack.pop().ok_or(Fault::Operand)?.checked_neg().ok_or(Fault::Overflow)?,
            Token::Operator(operator) => {
                let right = stack.pop().ok_or(Fault::Operand)?;
                let left = stack.pop().ok_or(Fault::Operand)?;
                apply(*operator, left, right)?
            }
            Token::Open | Token::Close => return Err(Fault::Parenthesis),
        };
        stack.push(value);
    }
    let value = stack.pop().ok_or(Fault::Empty)?;
    if stack.is_empty() { Ok(value) } else { Err(Fault::Operand) }
}

fn apply(operator: char, left: i64, right: i64) -> Result<i64, Fault> {
    if right == 0 && (operator == '/' || operator == '%') {
        return Err(Fault::Zero);
    }
    let value = match operator {
        '+' => left.checked_add(right),
        '-' => left.checked_sub(right),
        '*' => left.checked_mul(right),
        '/' => left.checked_div(right),
        '%' => left.checked_rem_euclid(right),
        _ => power(left, right),
    };
    value.ok_or(Fault::Overflow)
}

fn power(base: i64, exponent: i64) -> Option<i64> {
    let mut value: i64 = 1;
    for _ in 0..exponent.min(64) {
        value = value.checked_mul(base)?;
    }
    if exponent > 64 && value > 1 { None } else { Some(value) }
}
