//! Splits a formula into tokens.

use crate::machine::Fault;

/// A part of a formula. `Negate` is the minus of one operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Number(i64),
    Name(String),
    Operator(char),
    Negate,
    Open,
    Close,
}

/// Returns the tokens of a formula.
pub fn lex(text: &str) -> Result<Vec<Token>, Fault> {
    let letters: Vec<char> = text.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        let after_value = matches!(tokens.last(), Some(Token::Number(_) | Token::Name(_) | Token::Close));
        if letter.is_ascii_digit() {
            let mut value: i64 = 0;
            while at < letters.len() && (letters[at].is_ascii_digit() || letters[at] == '_') {
                if let Some(digit) = letters[at].to_digit(10) {
                    value = value.checked_mul(10).ok_or(Fault::Overflow)? + i64::from(digit);
                }
                at = at + 1;
            }
            tokens.push(Token::Number(value));
            continue;
        }
        if letter.is_alphabetic() {
            let begin = at;
            while at < letters.len() && letters[at].is_alphanumeric() {
                at = at + 1;
            }
            tokens.push(Token::Name(letters[begin..at].iter().collect()));
            continue;
        }
        match letter {
            ' ' | '\t' => {}
            '(' => tokens.push(Token::Open),
            ')' => tokens.push(Token::Close),
            '-' if !after_value => tokens.push(Token::Negate),
            '+' | '-' | '*' | '/' | '%' | '^' => tokens.push(Token::Operator(letter)),
            _ => return Err(Fault::Letter(letter)),
        }
        at = at + 1;
    }
    Ok(tokens)
}
