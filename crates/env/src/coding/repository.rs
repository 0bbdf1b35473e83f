//! An episode's files in memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use turnwise_sandbox::Files;

const MOST_LINES: usize = 200;
const MOST_FOUND: usize = 40;
const LINE_WIDTH: usize = 400;
/// Maximum total bytes of all files after an edit.
const MOST_BYTES: usize = 4 << 20;

/// Content of a file. In JSON, UTF-8 content is a string, and other content is a list of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// An episode's files by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Repository(BTreeMap<String, Content>);

/// Place of an edit in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A text that occurs exactly once.
    Text(String),
    /// First and last line to replace, 1-based and inclusive. If `last < first`, the new text is
    /// inserted before line `first`.
    Lines(usize, usize),
    /// The whole file, which may be new.
    Whole,
}

impl Repository {
    /// Creates a task's files.
    pub fn new(files: &BTreeMap<String, String>) -> Self {
        Self(files.iter().map(|(path, text)| (path.clone(), Content::Text(text.clone()))).collect())
    }

    /// Converts files from a sandbox.
    pub(crate) fn of_files(files: Files) -> Self {
        Self(files.into_iter().map(|(path, bytes)| (path, bytes.into())).collect())
    }

    /// Converts files for a sandbox.
    pub(crate) fn to_files(&self) -> Files {
        self.0.iter().map(|(path, content)| (path.clone(), content.bytes().to_vec())).collect()
    }

    /// Returns the files that are UTF-8 text, by path.
    pub fn texts(&self) -> BTreeMap<String, String> {
        let texts = self.0.iter().filter_map(|(path, content)| match content {
            Content::Text(text) => Some((path.clone(), text.clone())),
            Content::Bytes(_) => None,
        });
        texts.collect()
    }

    fn bytes(&self) -> usize {
        self.0.values().map(|content| content.bytes().len()).sum()
    }

    fn text(&self, path: &str) -> Result<&str, String> {
        match self.0.get(path) {
            Some(Content::Text(text)) => Ok(text),
            Some(Content::Bytes(bytes)) => Err(format!("{path} is not text ({} bytes)", bytes.len())),
            None => Err(format!("there is no file {path}; files: {}", self.list())),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.0.keys().try_for_each(|path| check_path(path))
    }

    /// Lists the file paths.
    pub fn list(&self) -> String {
        listed(self.0.keys().map(String::as_str))
    }

    /// Returns numbered lines of a file.
    ///
    /// # Errors
    /// Fails if the file is missing or not text, or the lines do not exist. The agent sees the
    /// error.
    pub fn view(&self, path: &str, first: usize, last: Option<usize>) -> Result<String, String> {
        let text = self.text(path)?;
        let count = text.lines().count();
        let last = last.unwrap_or(count).min(count);
        if count == 0 {
            return Ok(format!("{path} is empty"));
        }
        if first == 0 || first > last {
            return Err(format!("{path} has the lines 1 to {count}"));
        }
        let mut shown = String::new();
        for (number, line) in
            text.lines().enumerate().skip(first - 1).take((last - first + 1).min(MOST_LINES))
        {
            let _ = writeln!(shown, "{} {}", number + 1, cut(line));
        }
        if last - first + 1 > MOST_LINES {
            let _ = writeln!(shown, "({count} lines in all)");
        }
        Ok(shown.trim_end_matches('\n').to_owned())
    }

    /// Returns the lines that contain a text.
    ///
    /// # Errors
    /// Fails if the text is empty.
    pub fn search(&self, text: &str) -> Result<String, String> {
        if text.is_empty() {
            return Err("the text to search for is empty".to_owned());
        }
        let mut found = Vec::new();
        for (path, content) in &self.0 {
            let Content::Text(content) = content else { continue };
            let lines = content.lines().enumerate().filter(|(_, line)| line.contains(text));
            found.extend(lines.map(|(number, line)| format!("{path}:{}: {}", number + 1, cut(line))));
        }
        Ok(findings(found))
    }

    /// Edits a file, or leaves it unchanged on error.
    ///
    /// # Errors
    /// Fails if the place to edit does not exist or is ambiguous, or if the files would become too
    /// large.
    pub(crate) fn edit(&mut self, path: &str, place: &Place, new: &str) -> Result<String, String> {
        check_path(path)?;
        if self.bytes().saturating_add(new.len()) > MOST_BYTES {
            return Err(format!("the files would be larger than {MOST_BYTES} bytes"));
        }
        let changed = match place {
            Place::Whole => new.to_owned(),
            Place::Text(old) => {
                let text = self.text(path)?;
                match text.matches(old.as_str()).take(2).count() {
                    _ if old.is_empty() => return Err("`old` is empty".to_owned()),
                    0 => return Err(format!("`old` is not in {path}")),
                    1 => text.replacen(old.as_str(), new, 1),
                    _ => {
                        return Err(format!(
                            "`old` is more than once in {path}; take more of its lines, or line numbers"
                        ));
                    }
                }
            }
            Place::Lines(first, last) => {
                let lines: Vec<&str> = self.text(path)?.split_inclusive('\n').collect();
                // `last < first` means insertion.
                if *first == 0 || *first > lines.len() + 1 || *last > lines.len() || *last + 1 < *first {
                    return Err(format!("{path} has the lines 1 to {}", lines.len()));
                }
                let mut text = lines[..first - 1].concat();
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(new);
                if !new.is_empty() && !new.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&lines[*last..].concat());
                text
            }
        };
        self.0.insert(path.to_owned(), Content::Text(changed));
        Ok(format!("changed {path}"))
    }
}

/// Rejects paths outside a repository.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let wrong = |part: &str| part.is_empty() || part == "." || part == "..";
    if path.contains('\0') || path.len() > 4000 || path.split('/').any(wrong) || path.split('/').count() > 32
    {
        return Err(format!("{path:?} is not a path in the repository"));
    }
    Ok(())
}

pub(crate) fn listed<'a>(paths: impl ExactSizeIterator<Item = &'a str>) -> String {
    let all = paths.len();
    let mut text = paths.take(MOST_LINES).collect::<Vec<_>>().join(", ");
    if all > MOST_LINES {
        let _ = write!(text, " and {} more", all - MOST_LINES);
    }
    text
}

pub(crate) fn findings(mut found: Vec<String>) -> String {
    let all = found.len();
    if all == 0 {
        return "nothing found".to_owned();
    }
    found.truncate(MOST_FOUND);
    if all > MOST_FOUND {
        found.push(format!("({all} lines in all)"));
    }
    found.join("\n")
}

pub(crate) fn cut(line: &str) -> &str {
    let end = line.char_indices().nth(LINE_WIDTH).map_or(line.len(), |(place, _)| place);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> Repository {
        let files = [("a.py", "one\ntwo\ntwo\n"), ("b/c.py", "x = 1")];
        Repository::new(&files.map(|(path, text)| (path.to_owned(), text.to_owned())).into())
    }

    #[test]
    fn edits_replace_texts_and_lines() {
        let mut files = repository();
        for (path, place, new, expected) in [
            ("a.py", Place::Text("one".into()), "1", "1\ntwo\ntwo\n"),
            ("a.py", Place::Lines(2, 2), "2", "1\n2\ntwo\n"),
            ("a.py", Place::Lines(4, 3), "end\n", "1\n2\ntwo\nend\n"),
            ("a.py", Place::Lines(1, 3), "", "end\n"),
            ("b/c.py", Place::Lines(2, 1), "y = 2", "x = 1\ny = 2\n"),
            ("new.py", Place::Whole, "n", "n"),
        ] {
            files.edit(path, &place, new).unwrap();
            assert_eq!(files.texts()[path], expected);
        }
    }

    #[test]
    fn wrong_places_change_nothing() {
        let mut files = repository();
        let large = "x".repeat(MOST_BYTES);
        for (path, place, new, said) in [
            ("a.py", Place::Text("two".into()), "2", "more than once"),
            ("a.py", Place::Text("three".into()), "3", "is not in"),
            ("a.py", Place::Text(String::new()), "3", "is empty"),
            ("a.py", Place::Lines(0, 1), "", "lines 1 to 3"),
            ("a.py", Place::Lines(3, 1), "", "lines 1 to 3"),
            ("a.py", Place::Lines(1, usize::MAX - 1), "", "lines 1 to 3"),
            ("no.py", Place::Text("x".into()), "", "no file no.py; files: a.py, b/c.py"),
            ("../a", Place::Whole, "", "not a path"),
            ("/a", Place::Whole, "", "not a path"),
            ("a\0", Place::Whole, "", "not a path"),
            ("a.py", Place::Whole, large.as_str(), "larger than"),
        ] {
            let error = files.edit(path, &place, new).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert_eq!(files, repository());
        }
    }

    #[test]
    fn views_and_searches_are_bounded() {
        let mut files = repository();
        assert_eq!(files.view("a.py", 2, None).unwrap(), "2 two\n3 two");
        assert_eq!(files.search("two").unwrap(), "a.py:2: two\na.py:3: two");
        assert_eq!(files.search("zzz").unwrap(), "nothing found");
        assert!(files.view("a.py", 9, None).unwrap_err().contains("lines 1 to 3"));
        files.edit("long", &Place::Whole, &format!("{}\n", "é".repeat(1000)).repeat(500)).unwrap();
        let shown = files.view("long", 1, None).unwrap();
        assert!(shown.ends_with("(500 lines in all)") && shown.chars().count() < 200 * 410);
        assert!(files.search("é").unwrap().ends_with("(500 lines in all)"));
        let odd = Repository::of_files(Files::from([("o".to_owned(), vec![255])]));
        assert!(odd.view("o", 1, None).unwrap_err().contains("not text"));
        assert_eq!(odd.to_files()["o"], [255]);
        let json = serde_json::to_string(&odd).unwrap();
        assert_eq!(serde_json::from_str::<Repository>(&json).unwrap(), odd);
    }
}
