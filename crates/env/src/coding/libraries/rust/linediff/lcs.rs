//! The longest common sequence of lines.

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Keep(&'a str),
    Add(&'a str),
    Remove(&'a str),
}

/// Returns the places of the longest common sequence, in both texts.
pub fn common(left: &[&str], right: &[&str]) -> Vec<(usize, usize)> {
    // `best[a][b]` is the length for the lines from `a` and `b` on.
    let mut best = vec![vec![0; right.len() + 1]; left.len() + 1];
    for a in (0..left.len()).rev() {
        for b in (0..right.len()).rev() {
            best[a][b] = if left[a] == right[b] {
                best[a + 1][b + 1] + 1
            } else {
                best[a + 1][b].max(best[a][b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut pairs = Vec::new();
    while a < left.len() && b < right.len() {
        if left[a] == right[b] {
            pairs.push((a, b));
            a = a + 1;
            b = b + 1;
        } else if best[a + 1][b] >= best[a][b + 1] {
            a = a + 1;
        } else {
            b = b + 1;
        }
    }
    pairs
}

/// Returns the changes from one text to another; removed lines come before added ones.
pub fn changes<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Change<'a>> {
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    let end = (old.len(), new.len());
    for (next_a, next_b) in common(old, new).into_iter().chain([end]) {
        found.extend(old[a..next_a].iter().map(|line| Change::Remove(line)));
        found.extend(new[b..next_b].iter().map(|line| Change::Add(line)));
        if (next_a, next_b) != end {
            found.push(Change::Keep(old[next_a]));
        }
        a = next_a + 1;
        b = next_b + 1;
    }
    found
}
