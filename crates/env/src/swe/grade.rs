//! Decides whether an instance is solved, by the rules of SWE-bench and R2E-Gym.

use std::collections::BTreeMap;

use super::logs::{LogFormat, Status, Statuses, r2e};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Grade {
    pub(super) solved: bool,
    pub(super) passed: usize,
    pub(super) tests: usize,
}

/// Returns a test's status. SWE-bench cuts off some test names inside a parameter. A truncated name
/// gets the status of the tests whose names start with it, if all or none of these tests pass.
fn status(statuses: &Statuses, name: &str) -> Option<Status> {
    if let Some(status) = statuses.get(name) {
        return Some(*status);
    }
    if name.matches('[').count() <= name.matches(']').count() {
        return None;
    }
    let mut found = statuses.range(name.to_owned()..).take_while(|(known, _)| known.starts_with(name));
    let (_, first) = found.next()?;
    found.all(|(_, other)| other.passes() == first.passes()).then_some(*first)
}

/// Grades by SWE-bench's rule: all tests of `fail_to_pass` must pass, and all tests of
/// `pass_to_pass` must pass or be skipped.
///
/// If the test program fails although its log shows no failed test, no test counts as passed.
pub(super) fn swe_bench(
    log: &str,
    code: Option<i32>,
    format: LogFormat,
    fail_to_pass: &[String],
    pass_to_pass: &[String],
) -> Grade {
    let mut statuses = format.parse(log);
    let failed = |status: &Status| matches!(status, Status::Failed | Status::Error);
    if code != Some(0) && !statuses.values().any(failed) {
        statuses.clear();
    }
    let fixed = fail_to_pass.iter().filter(|name| status(&statuses, name).is_some_and(Status::passes));
    let kept = |name: &&String| {
        status(&statuses, name).is_some_and(|status| status.passes() || status == Status::Skipped)
    };
    let passed = fixed.count() + pass_to_pass.iter().filter(kept).count();
    let tests = fail_to_pass.len() + pass_to_pass.len();
    Grade { solved: passed == tests, passed, tests }
}

/// Grades by R2E-Gym's rule: the log must contain exactly the tests of `expected`, each with its
/// expected status.
pub(super) fn r2e_gym(log: &str, expected: &BTreeMap<String, String>) -> Grade {
    let statuses = r2e(log);
    let same = |(name, word): &(&String, &String)| {
        Status::of_word(word).is_some_and(|status| statuses.get(*name) == Some(&status))
    };
    let passed = expected.iter().filter(same).count();
    Grade {
        solved: passed == expected.len() && statuses.len() == expected.len(),
        passed,
        tests: expected.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swe_bench_needs_every_test() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let grade = |log: &str, code, fail: &[&str], pass: &[&str]| {
            swe_bench(log, code, LogFormat::Pytest, &names(fail), &names(pass)).solved
        };
        let log = "PASSED a::t\nSKIPPED a::s\nXFAIL a::x\nPASSED a::p[1]\nPASSED a::p[2]";
        assert!(grade(log, Some(0), &["a::t", "a::x"], &["a::s", "a::p["]));
        for (fail, pass) in [(&["a::s"][..], &[][..]), (&["a::t", "a::none"], &[]), (&["a::t"], &["a::none"])]
        {
            assert!(!grade(log, Some(0), fail, pass), "{fail:?} {pass:?}");
        }
        assert!(!grade("PASSED a::t", Some(1), &["a::t"], &[]), "the program failed, but no test did");
        assert!(grade("PASSED a::t\nFAILED a::u", Some(1), &["a::t"], &[]));
        assert!(!grade("PASSED a::p[1]\nFAILED a::p[2]", Some(1), &["a::p["], &[]), "they disagree");
        assert!(!grade("PASSED a::t", None, &["a::t"], &[]), "the tests ran out of time");
    }

    #[test]
    fn r2e_gym_needs_the_expected_statuses() {
        let expected = BTreeMap::from([("t".to_owned(), "PASSED".to_owned()), ("u".into(), "FAILED".into())]);
        let head = "short test summary info\n";
        let solved = |log: &str| r2e_gym(&format!("{head}{log}"), &expected).solved;
        assert!(solved("PASSED a::t\nFAILED a::u - x"));
        assert!(!solved("PASSED a::t\nPASSED a::u"));
        assert!(!solved("PASSED a::t"));
        assert!(!solved("PASSED a::t\nFAILED a::u\nPASSED a::v"));
        assert!(!r2e_gym("PASSED a::t\nFAILED a::u", &expected).solved, "no summary");
    }
}
