//! A calculator of whole numbers with names.

mod lexer;
mod machine;
mod parser;

pub use lexer::{Token, lex};
pub use machine::{Fault, Names, run};
pub use parser::postfix;

#[cfg(test)]
mod tests;

/// Computes lines such as `a = 2 * (3 + 4)`; returns the value of the last.
pub fn calculate(text: &str) -> Result<i64, Fault> {
    let mut names = Names::new();
    let mut last = Err(Fault::Empty);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let (name, formula) = match line.split_once('=') {
            Some((name, formula)) => (Some(name.trim()), formula),
            None => (None, line),
        };
        let value = run(&postfix(&lex(formula)?)?, &names)?;
        if let Some(name) = name {
            names.insert(name.to_owned(), value);
        }
        last = Ok(value);
    }
    last
}
