//! Parses the status of each test from a log, by the rules of SWE-bench and R2E-Gym.

use std::collections::BTreeMap;

pub(super) type Statuses = BTreeMap<String, Status>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Passed,
    Failed,
    /// The test could not run.
    Error,
    Skipped,
    /// The test failed as expected.
    Xfail,
}

const WORDS: [(&str, Status); 5] = [
    ("FAILED", Status::Failed),
    ("PASSED", Status::Passed),
    ("SKIPPED", Status::Skipped),
    ("ERROR", Status::Error),
    ("XFAIL", Status::Xfail),
];

impl Status {
    pub(super) fn of_word(word: &str) -> Option<Self> {
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, status)| *status)
    }

    pub(super) fn passes(self) -> bool {
        matches!(self, Self::Passed | Self::Xfail)
    }
}

/// Log format of a test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum LogFormat {
    /// pytest's summary: lines with a status and a test name, of which only the first word counts.
    Pytest,
    /// Like `Pytest`, but a path in a test's parameters is shortened to its last part.
    PytestOptions,
    /// pytest's summary with the whole test names, and the lines of old pytest versions, which end
    /// with the status.
    PytestWhole,
    /// Django's test program.
    Django,
    /// pytest's output for seaborn, with the status before or after the test name.
    Seaborn,
    /// SymPy's `bin/test`.
    Sympy,
    /// Like `Pytest`, but `MouseButton.LEFT` and `MouseButton.RIGHT` in test names become numbers.
    Matplotlib,
}

impl LogFormat {
    pub(super) fn parse(self, log: &str) -> Statuses {
        match self {
            Self::Pytest => pytest(log, str::to_owned),
            Self::PytestOptions => pytest(log, short_option),
            Self::PytestWhole => pytest_whole(log),
            Self::Django => django(log),
            Self::Seaborn => seaborn(log),
            Self::Sympy => sympy(log),
            Self::Matplotlib => {
                let log = log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3");
                pytest(&log, str::to_owned)
            }
        }
    }
}

/// Returns true for pytest's count of skipped tests (`SKIPPED [3] file:line: why`), which is not a
/// test name.
fn is_count(status: Status, name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    status == Status::Skipped
        && inner.is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_digit()))
}

fn pytest(log: &str, name_of: impl Fn(&str) -> String) -> Statuses {
    let mut found = Statuses::new();
    for line in log.lines() {
        if !WORDS.iter().any(|(word, _)| line.starts_with(word)) {
            continue;
        }
        let line = if line.starts_with("FAILED") { line.replace(" - ", " ") } else { line.to_owned() };
        let mut words = line.split_whitespace();
        let (Some(word), Some(name)) = (words.next(), words.next()) else { continue };
        // A line such as `ERRORS` only starts like a status.
        let Some(status) = Status::of_word(word) else { continue };
        if !is_count(status, name) {
            found.insert(name_of(name), status);
        }
    }
    found
}

fn short_option(name: &str) -> String {
    let Some((main, rest)) = name.split_once('[') else { return name.to_owned() };
    let Some((option, _)) = rest.rsplit_once(']') else { return name.to_owned() };
    let is_path = option.starts_with('/') && !option.starts_with("//") && !option.contains('*');
    match option.rsplit_once('/').filter(|_| is_path) {
        Some((_, last)) => format!("{main}[/{last}]"),
        None => format!("{main}[{option}]"),
    }
}

fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if let Some(after) = after[digits..].strip_prefix('m').filter(|_| digits > 0) {
            rest = after;
        } else {
            text.push('[');
            rest = after;
        }
    }
    text.push_str(rest);
    text.retain(|letter| letter >= ' ');
    text
}

fn pytest_whole(log: &str) -> Statuses {
    let mut found = Statuses::new();
    for line in log.lines() {
        let line = plain(line);
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if WORDS.iter().any(|(word, _)| line.starts_with(word)) {
            let line = match line.split_once(" - ").filter(|_| line.starts_with("FAILED")) {
                Some((before, _)) => before,
                None => &line,
            };
            words = line.split_whitespace().collect();
            let Some((word, name)) = words.split_first().filter(|(_, name)| !name.is_empty()) else {
                continue;
            };
            let Some(status) = Status::of_word(word) else { continue };
            if !name.first().is_some_and(|name| is_count(status, name)) {
                found.insert(name.join(" "), status);
            }
        } else if let Some(status) = words.pop().and_then(Status::of_word).filter(|_| !words.is_empty()) {
            found.insert(words.join(" "), status);
        }
    }
    found
}

fn django(log: &str) -> Statuses {
    let mut found = Statuses::new();
    let mut previous: Option<String> = None;
    for line in log.lines().map(str::trim) {
        if line.contains("--version is equivalent to version") {
            found.insert("--version is equivalent to version".to_owned(), Status::Passed);
        }
        if let Some((name, _)) = line.split_once(" ... ") {
            previous = Some(name.to_owned());
        }
        let passed = [" ... ok", " ... OK", " ...  OK"].iter().find_map(|end| line.strip_suffix(end));
        if let Some(mut name) = passed {
            // In one instance, a migration's line precedes the test's name.
            if name.starts_with("Applying sites.0002_alter_domain_unique...test_no_migrations") {
                name = name.split_once("...").map_or(name, |(_, name)| name.trim());
            }
            found.insert(name.to_owned(), Status::Passed);
        }
        if let Some((name, _)) = line.split_once(" ... skipped") {
            found.insert(name.to_owned(), Status::Skipped);
        }
        for (end, start, status) in
            [(" ... FAIL", "FAIL:", Status::Failed), (" ... ERROR", "ERROR:", Status::Error)]
        {
            if let Some(name) = line.strip_suffix(end) {
                found.insert(name.to_owned(), status);
            }
            if let Some(name) = line.strip_prefix(start).and_then(|rest| rest.split_whitespace().next()) {
                found.insert(name.to_owned(), status);
            }
        }
        // Output may stand between the name and `ok`.
        if line.starts_with("ok")
            && let Some(name) = &previous
        {
            found.insert(name.clone(), Status::Passed);
        }
    }
    found
}

fn seaborn(log: &str) -> Statuses {
    let mut found = Statuses::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [first, second, ..] = words.as_slice() else { continue };
        if line.starts_with("FAILED") {
            found.insert((*second).to_owned(), Status::Failed);
        } else if line.contains(" PASSED ") {
            if *second == "PASSED" {
                found.insert((*first).to_owned(), Status::Passed);
            }
        } else if line.starts_with("PASSED") {
            found.insert((*second).to_owned(), Status::Passed);
        }
    }
    found
}

fn sympy(log: &str) -> Statuses {
    let mut found = Statuses::new();
    for line in log.lines() {
        // A failure's title: `____ sympy/core/tests/test_a.py:test_b ____`.
        let title = line.trim_matches('_');
        if let Some(title) = title.strip_prefix(' ').and_then(|rest| rest.strip_suffix(' '))
            && line.starts_with('_')
            && let Some((file, name)) = title.split_once(".py:")
        {
            found.insert(format!("{file}.py:{name}"), Status::Failed);
        }
    }
    for line in log.lines().map(str::trim).filter(|line| line.starts_with("test_")) {
        let Some(name) = line.split_whitespace().next() else { continue };
        for (end, status) in [(" E", Status::Error), (" F", Status::Failed), (" ok", Status::Passed)] {
            if line.ends_with(end) {
                found.insert(name.to_owned(), status);
            }
        }
    }
    found
}

/// Parses a log by R2E-Gym's rule: a test's name is the part after the file name, with `::`
/// replaced by `.`.
pub(super) fn r2e(log: &str) -> Statuses {
    let log = without_colours(log);
    let Some((_, summary)) = log.split_once("short test summary info") else { return Statuses::new() };
    // A second summary is ignored.
    let summary = summary.split("short test summary info").next().unwrap_or_default();
    let mut found = Statuses::new();
    for line in summary.trim().lines() {
        let status = ["PASSED", "FAILED", "ERROR"].into_iter().find(|word| line.contains(word));
        let Some(status) = status.and_then(Status::of_word) else { continue };
        let name = line.split("::").skip(1).collect::<Vec<_>>().join(".");
        found.insert(r2e_name(&name), status);
    }
    found
}

pub(super) fn r2e_name(name: &str) -> String {
    let name = without_colours(name);
    name.split(" - ").next().unwrap_or_default().to_owned()
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let parameters = after.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
        rest = after[parameters..].strip_prefix('m').unwrap_or(after);
    }
    plain.push_str(rest);
    plain.replace('\r', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(statuses: &Statuses) -> Vec<(&str, Status)> {
        statuses.iter().map(|(name, status)| (name.as_str(), *status)).collect()
    }

    #[test]
    fn each_format_is_read_by_its_rules() {
        use Status::{Error, Failed, Passed, Skipped, Xfail};
        let log = "FAILED a.py::t1 - assert 1\nPASSED a.py::t2[x y]\nERRORS\nSKIPPED [1] a.py:3: no\nXFAIL a.py::t3\nERROR a.py";
        let expected: &[(&str, Status)] =
            &[("a.py", Error), ("a.py::t1", Failed), ("a.py::t2[x", Passed), ("a.py::t3", Xfail)];
        assert_eq!(shown(&LogFormat::Pytest.parse(log)), expected);
        let log = "PASSED a.py::t[/tmp/x/y.py]\nPASSED a.py::t[//x/y]\nSKIPPED a.py::u";
        let expected: &[(&str, Status)] =
            &[("a.py::t[//x/y]", Passed), ("a.py::t[/y.py]", Passed), ("a.py::u", Skipped)];
        assert_eq!(shown(&LogFormat::PytestOptions.parse(log)), expected);
        let log = "\u{1b}[32mPASSED\u{1b}[0m a.py::t[x y]\nb.py::t PASSED\nFAILED a.py::u - a - b\nerror: PASSED by\n";
        let expected: &[(&str, Status)] =
            &[("a.py::t[x y]", Passed), ("a.py::u", Failed), ("b.py::t", Passed)];
        assert_eq!(shown(&LogFormat::PytestWhole.parse(log)), expected);
        let log = "test_a (x.T) ... ok\ntest_b (x.T) ... FAIL\ntest_c (x.T) ... skipped 'no'\ntest_d (x.T) ... Output\nok\nERROR: test_e (x.T)";
        let expected: &[(&str, Status)] = &[
            ("test_a (x.T)", Passed),
            ("test_b (x.T)", Failed),
            ("test_c (x.T)", Skipped),
            ("test_d (x.T)", Passed),
            ("test_e", Error),
        ];
        assert_eq!(shown(&LogFormat::Django.parse(log)), expected);
        let log = "a.py::t PASSED [ 1%]\nPASSED a.py::u\nFAILED a.py::v - x";
        let expected: &[(&str, Status)] = &[("a.py::t", Passed), ("a.py::u", Passed), ("a.py::v", Failed)];
        assert_eq!(shown(&LogFormat::Seaborn.parse(log)), expected);
        let log = "test_a ok\ntest_b F\ntest_c E\n___ sympy/a.py:test_b ___\n";
        let expected: &[(&str, Status)] =
            &[("sympy/a.py:test_b", Failed), ("test_a", Passed), ("test_b", Failed), ("test_c", Error)];
        assert_eq!(shown(&LogFormat::Sympy.parse(log)), expected);
        assert!(LogFormat::Matplotlib.parse("PASSED t[MouseButton.LEFT]").contains_key("t[1]"));
    }

    #[test]
    fn r2e_reads_the_summary_alone() {
        let log = "PASSED no::no\n== short test summary info ==\n\u{1b}[32mPASSED\u{1b}[0m r2e_tests/a.py::T::t1\r\n\
                   FAILED r2e_tests/a.py::t2 - assert 1 - 2\nERROR r2e_tests/b.py\n== 1 failed ==";
        let statuses = r2e(log);
        assert_eq!(shown(&statuses), [("", Status::Error), ("T.t1", Status::Passed), ("t2", Status::Failed)]);
        assert!(r2e("PASSED a::b").is_empty());
    }
}
