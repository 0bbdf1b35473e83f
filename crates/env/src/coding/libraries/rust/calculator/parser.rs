//! Orders tokens so that operators follow their operands.

use crate::lexer::Token;
use crate::machine::Fault;

fn rank(token: &Token) -> u32 {
    match token {
        Token::Operator('+' | '-') => 1,
        Token::Operator('*' | '/' | '%') => 2,
        Token::Negate => 3,
        Token::Operator(_) => 4,
        _ => 0,
    }
}

fn binds_right(token: &Token) -> bool {
    *token == Token::Negate || *token == Token::Operator('^')
}

/// Returns the tokens in postfix order, without parentheses.
pub fn postfix(tokens: &[Token]) -> Result<Vec<Token>, Fault> {
    let mut output = Vec::new();
    let mut waiting: Vec<Token> = Vec::new();
    for token in tokens {
        match token {
            Token::Number(_) | Token::Name(_) => output.push(token.clone()),
            Token::Open => waiting.push(token.clone()),
            Token::Close => loop {
                match waiting.pop() {
                    Some(Token::Open) => break,
                    Some(other) => output.push(other),
                    None => return Err(Fault::Parenthesis),
                }
            },
            Token::Negate => waiting.push(Token::Negate),
            Token::Operator(_) => {
                while let Some(top) = waiting.last() {
                    let first = rank(top) > rank(token) || rank(top) == rank(token) && !binds_right(token);
                    if !first {
                        break;
                    }
                    output.extend(waiting.pop());
                }
                waiting.push(token.clone());
            }
        }
    }
    while let Some(token) = waiting.pop() {
        if token == Token::Open {
            return Err(Fault::Parenthesis);
        }
        output.push(token);
    }
    Ok(output)
}
