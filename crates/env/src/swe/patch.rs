//! Unified diffs.

/// Changes to one file. The old path is `None` for a new file, and the new path for a deleted one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilePatch {
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    pub(super) hunks: Vec<Hunk>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) text: String,
}

pub(super) fn parse(patch: &str) -> Vec<FilePatch> {
    let mut files: Vec<FilePatch> = Vec::new();
    let mut lines = patch.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("diff --git a/") {
            let (old, new) = rest.split_once(" b/").unwrap_or((rest, rest));
            files.push(FilePatch { old: Some(old.to_owned()), new: Some(new.to_owned()), hunks: Vec::new() });
        } else if let Some(path) = line.strip_prefix("--- ") {
            if let Some(file) = files.last_mut() {
                file.old = named(path, "a/");
            }
        } else if let Some(path) = line.strip_prefix("+++ ") {
            if let Some(file) = files.last_mut() {
                file.new = named(path, "b/");
            }
        } else if let Some((first, mut old, mut new)) = range(line) {
            let last = if old == 0 { first } else { first + old - 1 };
            let first = if old == 0 { first + 1 } else { first };
            let mut text = String::new();
            while old > 0 || new > 0 {
                let Some(line) = lines.next() else { break };
                // An editor may have stripped the space of an empty line.
                let (mark, content) = line.split_at_checked(1).unwrap_or((" ", ""));
                match mark {
                    "+" => new = new.saturating_sub(1),
                    "-" => old = old.saturating_sub(1),
                    " " => (old, new) = (old.saturating_sub(1), new.saturating_sub(1)),
                    _ => continue,
                }
                if mark != "-" {
                    text.push_str(content);
                    text.push('\n');
                }
            }
            if let Some(file) = files.last_mut() {
                file.hunks.push(Hunk { first, last, text });
            }
        }
    }
    files
}

fn named(path: &str, prefix: &str) -> Option<String> {
    let path = path.split('\t').next().unwrap_or_default().trim_end();
    (path != "/dev/null").then(|| path.strip_prefix(prefix).unwrap_or(path).to_owned())
}

/// Parses `@@ -12,3 +12,4 @@`: the first old line, the count of old lines and the count of new
/// lines.
fn range(line: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let pair = |text: &str| match text.split_once(',') {
        Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    let ((first, old), (_, new)) = (pair(old)?, pair(new)?);
    Some((first, old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_hunks_are_read() {
        let patch = "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@ def f\n a\n-b\n+B\n c\n\
                     @@ -9,0 +10,2 @@\n+n\n+--- m\n\\ No newline at end of file\ndiff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n\
                     +++ b/new\n@@ -0,0 +1 @@\n+x\ndiff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        let files = parse(patch);
        assert_eq!(files.len(), 3);
        assert_eq!(
            files[0].hunks,
            [
                Hunk { first: 1, last: 3, text: "a\nB\nc\n".into() },
                Hunk { first: 10, last: 9, text: "n\n--- m\n".into() }
            ]
        );
        assert_eq!((files[1].old.as_deref(), files[1].new.as_deref()), (None, Some("new")));
        assert_eq!((files[2].old.as_deref(), files[2].new.as_deref()), (Some("gone"), None));
        for odd in
            ["", "@@ -1 +1 @@\n-a\n+b\n", "diff --git a/x", "diff --git a/x b/x\n@@ -1,9 +1,9 @@\n a\n"]
        {
            assert!(parse(odd).len() < 2, "{odd}");
        }
    }
}
