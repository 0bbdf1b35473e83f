//! PDDL ids and names in the original's format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Appends a length, given in hundredths of a metre, such as `_plus_01_dot_20` for 120.
fn length(text: &mut String, value: i32) {
    let sign = if value < 0 { "_minus_" } else { "_plus_" };
    let value = value.unsigned_abs();
    let _ = write!(text, "{sign}{:02}_dot_{:02}", value / 100, value % 100);
}

pub(super) fn object(kind: &str, at: [i32; 3]) -> String {
    let mut id = String::with_capacity(kind.len() + 66);
    id.push_str(kind);
    for value in at {
        id.push_str("_bar_");
        length(&mut id, value);
    }
    id
}

pub(super) fn receptacle(kind: &str, at: [i32; 3]) -> String {
    match kind.strip_suffix("Basin") {
        Some(body) => {
            let mut id = object(body, at);
            id.push_str("_bar_");
            id.push_str(kind);
            id
        }
        None => object(kind, at),
    }
}

/// Returns a place's id from two coordinates on a 25 cm grid, a rotation and a tilt in degrees.
pub(super) fn place(at: [i32; 4]) -> String {
    let mut id = String::from("loc");
    for value in at {
        let sign = if value < 0 { "_minus_" } else { "" };
        let _ = write!(id, "_bar_{sign}{}", value.unsigned_abs());
    }
    id
}

/// Returns a name (`mug 2`) for each of the sorted ids. Within a type, the last id gets number 1.
pub(super) fn number<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let kind = |id: &str| {
        let mut kind = id.split("_bar_").next().unwrap_or_default().to_ascii_lowercase();
        if id.ends_with("Basin") {
            kind.push_str("basin");
        }
        kind
    };
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for id in ids.clone() {
        *left.entry(kind(id)).or_default() += 1;
    }
    ids.map(|id| {
        let kind = kind(id);
        let number = left.entry(kind.clone()).or_default();
        let name = format!("{kind} {number}");
        *number -= 1;
        name
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_the_original() {
        assert_eq!(
            object("Mug", [-281, 118, 420]),
            "Mug_bar__minus_02_dot_81_bar__plus_01_dot_18_bar__plus_04_dot_20"
        );
        assert!(
            receptacle("SinkBasin", [0, 5, 9]).starts_with("Sink_bar__plus_00_dot_00_bar__plus_00_dot_05")
        );
        assert!(receptacle("SinkBasin", [0, 0, 0]).ends_with("_bar_SinkBasin"));
        assert_eq!(place([-5, 4, 2, -30]), "loc_bar__minus_5_bar_4_bar_2_bar__minus_30");
    }

    #[test]
    fn numbers_fall_within_a_kind() {
        let ids = ["Cabinet_bar_1", "Cabinet_bar_2", "Mug_bar_1", "Sink_bar_1_bar_SinkBasin"];
        assert_eq!(number(ids.into_iter()), ["cabinet 2", "cabinet 1", "mug 1", "sinkbasin 1"]);
    }
}
