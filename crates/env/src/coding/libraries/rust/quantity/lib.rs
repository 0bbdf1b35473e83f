//! Lengths, times and masses in words, such as `2 km 300 m`.

mod parse;
mod units;

pub use parse::{Quantity, parse};
pub use units::{Kind, factor, kind, largest};

#[cfg(test)]
mod tests;

/// Adds two quantities of the same kind; `None` for different kinds.
pub fn add(left: Quantity, right: Quantity) -> Option<Quantity> {
    if left.kind != right.kind {
        return None;
    }
    Some(Quantity { kind: left.kind, amount: left.amount + right.amount })
}

/// Converts a quantity to whole units, rounded to the nearest.
pub fn convert(quantity: Quantity, unit: &str) -> Option<i64> {
    if kind(unit)? != quantity.kind {
        return None;
    }
    let size = factor(unit)?;
    let half = size / 2;
    if quantity.amount < 0 {
        return Some((quantity.amount - half) / size);
    }
    Some((quantity.amount + half) / size)
}

/// Writes a quantity with its largest units first; parts of zero are left out.
pub fn show(quantity: Quantity) -> String {
    let mut rest = quantity.amount.abs();
    let mut parts = Vec::new();
    while rest > 0 {
        let Some((unit, size)) = largest(quantity.kind, rest) else { break };
        parts.push(format!("{} {unit}", rest / size));
        rest = rest % size;
    }
    if parts.is_empty() {
        return "0".to_owned();
    }
    let sign = if quantity.amount < 0 { "-" } else { "" };
    format!("{sign}{}", parts.join(" "))
}
