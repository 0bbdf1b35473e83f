//! Reads quantities.

use crate::units::{Kind, factor, kind};

/// An amount in the smallest unit of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    pub kind: Kind,
    pub amount: i64,
}

/// Reads numbers and units, such as `1 h 30 min` or `-2km`. All units must be of one kind.
pub fn parse(text: &str) -> Option<Quantity> {
    let trimmed = text.trim();
    let negative = trimmed.starts_with('-');
    let mut rest = if negative { &trimmed[1..] } else { trimmed };
    let mut total = 0;
    let mut seen = None;
    while !rest.trim().is_empty() {
        let (number, after) = number(rest.trim())?;
        let (unit, after) = word(after.trim());
        let its_kind = kind(unit)?;
        if seen.is_some() && seen != Some(its_kind) {
            return None;
        }
        seen = Some(its_kind);
        total = total + number * factor(unit)?;
        rest = after;
    }
    let amount = if negative { -total } else { total };
    Some(Quantity { kind: seen?, amount })
}

fn number(text: &str) -> Option<(i64, &str)> {
    let mut value = 0;
    let mut length = 0;
    for letter in text.chars() {
        let Some(digit) = letter.to_digit(10) else { break };
        value = value * 10 + i64::from(digit);
        length = length + 1;
    }
    if length == 0 || length > 12 {
        return None;
    }
    Some((value, &text[length..]))
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_alphabetic()).unwrap_or(text.len());
    (&text[..end], &text[end..])
}
