//! Finds the longest prefix that a sequence shares with earlier ones.

use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Tree {
    branches: Vec<Branch>,
    roots: Vec<usize>,
}

/// Rows of a sequence that no earlier sequence has.
#[derive(Debug)]
struct Branch {
    rows: Range<usize>,
    /// Branches that leave this branch, each with the number of preceding rows in this branch, and
    /// its index. Branches that leave at the same row start with different tokens.
    children: Vec<(usize, usize)>,
}

impl Tree {
    /// Appends a sequence's shared rows to `path` and its other tokens to `tokens`.
    pub(crate) fn insert(&mut self, sequence: &[u32], tokens: &mut Vec<u32>, path: &mut Vec<Range<usize>>) {
        let mut rest = sequence;
        let mut at: Option<(usize, usize)> = None;
        while let Some(&token) = rest.first() {
            let starts_so = |&branch: &usize| tokens[self.branches[branch].rows.start] == token;
            let next = match at {
                None => self.roots.iter().copied().find(starts_so),
                Some((branch, place)) => {
                    let leaving = self.branches[branch].children.iter().filter(|(from, _)| *from == place);
                    leaving.map(|&(_, child)| child).find(starts_so)
                }
            };
            let Some(next) = next else { break };
            let rows = self.branches[next].rows.clone();
            let shared = common_prefix(&tokens[rows.clone()], rest);
            path.push(rows.start..rows.start + shared);
            rest = &rest[shared..];
            at = Some((next, shared));
        }
        if rest.is_empty() {
            return;
        }
        let branch = self.branches.len();
        self.branches.push(Branch { rows: tokens.len()..tokens.len() + rest.len(), children: Vec::new() });
        tokens.extend_from_slice(rest);
        match at {
            None => self.roots.push(branch),
            Some((parent, place)) => self.branches[parent].children.push((place, branch)),
        }
    }
}

pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
