//! Memory and CPU time of a sandbox, from `/proc`.

use std::fs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Number of resident pages, without those of the first process.
    pub(super) pages: u64,
    /// CPU ticks, including those of ended children.
    pub(super) ticks: u64,
}

/// Returns the total usage of the first process and its descendants. The first process's memory
/// does not count, because it is a copy of the calling program's memory.
pub(super) fn usage(first: i32) -> Usage {
    let mut total = Usage::default();
    let mut open = vec![first];
    while let Some(process) = open.pop() {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        if let Some(own) = parse(&stat) {
            total.pages += if process == first { 0 } else { own.pages };
            total.ticks += own.ticks;
        }
        // Threads may have children too.
        for thread in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|number| number.parse::<i32>().ok()));
        }
    }
    total
}

/// Parses `/proc/PID/stat`, whose process name may contain spaces and parentheses.
fn parse(stat: &str) -> Option<Usage> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Fields 14 to 17 are times, field 24 resident memory; `fields` starts with the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = (14..=17).map(field).sum::<Option<u64>>()?;
    Some(Usage { pages: field(24)?, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat =
            "7 (a) b) S 1 7 7 0 -1 4194560 10 20 0 0 5 6 7 8 20 0 1 0 100 4096 33 18446744073709551615";
        assert_eq!(parse(stat), Some(Usage { pages: 33, ticks: 26 }));
        assert_eq!(parse("7 (a"), None);
        // This process is a descendant of its parent.
        assert!(usage(std::os::unix::process::parent_id().cast_signed()).pages > 0);
    }
}
