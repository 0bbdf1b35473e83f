//! Merges two texts with a common origin.

use crate::lcs::common;

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub lines: Vec<String>,
    pub conflicts: usize,
}

/// Merges two changed texts. Where both changed the same lines in different ways, both versions are kept and counted
/// as a conflict.
pub fn merge(origin: &[&str], left: &[&str], right: &[&str]) -> Merged {
    let (in_left, in_right) = (common(origin, left), common(origin, right));
    let mut merged = Merged { lines: Vec::new(), conflicts: 0 };
    let (mut o, mut l, mut r) = (0, 0, 0);
    for place in 0..=origin.len() {
        let at_end = place == origin.len();
        let to_left = find(&in_left, place).or(if at_end { Some(left.len()) } else { None });
        let to_right = find(&in_right, place).or(if at_end { Some(right.len()) } else { None });
        let (Some(to_left), Some(to_right)) = (to_left, to_right) else { continue };
        part(&mut merged, &origin[o..place], &left[l..to_left], &right[r..to_right]);
        if !at_end {
            merged.lines.push(origin[place].to_owned());
        }
        (o, l, r) = (place + 1, to_left + 1, to_right + 1);
    }
    merged
}

fn find(pairs: &[(usize, usize)], place: usize) -> Option<usize> {
    pairs.iter().find(|pair| pair.0 == place).map(|pair| pair.1)
}

fn part(merged: &mut Merged, origin: &[&str], left: &[&str], right: &[&str]) {
    let mut add = |lines: &[&str]| merged.lines.extend(lines.iter().map(|line| (*line).to_owned()));
    if left == right || right == origin {
        add(left);
    } else if left == origin {
        add(right);
    } else {
        add(left);
        add(right);
        merged.conflicts = merged.conflicts + 1;
    }
}
