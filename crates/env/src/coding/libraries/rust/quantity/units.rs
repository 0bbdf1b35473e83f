//! The table of units.

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Length,
    Time,
    Mass,
}

/// Units with their size in the smallest unit of their kind, largest first.
const UNITS: [(&str, Kind, i64); 11] = [
    ("km", Kind::Length, 1_000_000),
    ("m", Kind::Length, 1_000),
    ("cm", Kind::Length, 10),
    ("mm", Kind::Length, 1),
    ("d", Kind::Time, 86_400),
    ("h", Kind::Time, 3_600),
    ("min", Kind::Time, 60),
    ("s", Kind::Time, 1),
    ("t", Kind::Mass, 1_000_000),
    ("kg", Kind::Mass, 1_000),
    ("g", Kind::Mass, 1),
];

/// Returns what a unit measures.
pub fn kind(unit: &str) -> Option<Kind> {
    let found = UNITS.iter().find(|known| known.0 == unit)?;
    Some(found.1)
}

/// Returns the size of a unit.
pub fn factor(unit: &str) -> Option<i64> {
    let found = UNITS.iter().find(|known| known.0 == unit)?;
    Some(found.2)
}

/// Returns the largest unit of a kind that is not larger than an amount.
pub fn largest(kind: Kind, amount: i64) -> Option<(&'static str, i64)> {
    for (unit, its_kind, size) in UNITS {
        if its_kind == kind && size <= amount {
            return Some((unit, size));
        }
    }
    None
}
