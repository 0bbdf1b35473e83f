//! Small defects: one typical mistake in a Python or Rust source.

type Mistake = (&'static str, &'static str);

const PYTHON: [Mistake; 38] = [
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" // ", " * "),
    (" / ", " // "),
    (" % ", " // "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    (" != ", " == "),
    (" and ", " or "),
    (" or ", " and "),
    (" not in ", " in "),
    (" in seen", " not in seen"),
    (" is None", " is not None"),
    ("not ", ""),
    ("min(", "max("),
    ("max(", "min("),
    ("sorted(", "list("),
    ("True", "False"),
    ("False", "True"),
    (" + 1", ""),
    (" - 1", ""),
    (" + 1", " + 2"),
    (" = 0", " = 1"),
    (" = 1", " = 0"),
    ("return 0", "return 1"),
    ("range(1, ", "range(0, "),
    ("[0]", "[1]"),
    ("[1]", "[0]"),
    ("[-1]", "[0]"),
    (".append(", ".remove("),
    (".lower()", ""),
    (".strip()", ""),
    ("continue", "break"),
    ("break", "continue"),
];

const RUST: [Mistake; 45] = [
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" / ", " * "),
    (" % ", " / "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    (" != ", " == "),
    (" && ", " || "),
    (" || ", " && "),
    ("!", ""),
    ("true", "false"),
    ("false", "true"),
    (" + 1", ""),
    (" - 1", ""),
    (" + 1", " + 2"),
    ("0..=", "1..="),
    ("0..", "1.."),
    ("1..", "0.."),
    ("..=", ".."),
    ("[1..]", "[0..]"),
    (" = 0", " = 1"),
    ("== 0", "== 1"),
    (".max(", ".min("),
    (".min(", ".max("),
    (".any(", ".all("),
    (".is_some()", ".is_none()"),
    (".is_none()", ".is_some()"),
    (".rev()", ""),
    (".trim()", ""),
    (".abs()", ""),
    (".last()", ".first()"),
    (".first()", ".last()"),
    (".last_mut()", ".first_mut()"),
    (".saturating_sub(1)", ""),
    (".chain([end])", ""),
    ("checked_add", "checked_sub"),
    ("checked_rem_euclid", "checked_rem"),
    ("starts_with", "ends_with"),
    ("to_lowercase", "to_string"),
    ("continue", "break"),
    ("break", "continue"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) text: String,
    pub(super) line: usize,
}

/// Returns the distinct variants of a Python source that contain one mistake, in the order of the
/// mistake's position.
pub(super) fn mutants(source: &str) -> Vec<Mutant> {
    let mut in_text = false;
    let is_code = |line: &str| {
        let quotes = line.matches("\"\"\"").count();
        let code = !in_text && quotes == 0 && is_code(line);
        in_text ^= quotes % 2 == 1;
        code
    };
    with_mistakes(source, &PYTHON, is_code)
}

/// Returns the variants of a Rust source, like [`mutants`]. Some variants do not compile.
pub(super) fn rust_mutants(source: &str) -> Vec<Mutant> {
    with_mistakes(source, &RUST, is_rust_code)
}

fn with_mistakes(source: &str, mistakes: &[Mistake], mut is_code: impl FnMut(&str) -> bool) -> Vec<Mutant> {
    let mut found: Vec<Mutant> = Vec::new();
    let mut start = 0;
    for (number, line) in source.split_inclusive('\n').enumerate() {
        let code = is_code(line);
        for (right, wrong) in mistakes.iter().filter(|_| code) {
            for (place, _) in line.match_indices(right) {
                let at = start + place;
                let text = [&source[..at], wrong, &source[at + right.len()..]].concat();
                // Two mistakes may give the same text, such as `not in` without `not` and `in`.
                if found.iter().all(|known| known.text != text) {
                    found.push(Mutant { text, line: number + 1 });
                }
            }
        }
        start += line.len();
    }
    found
}

fn is_code(line: &str) -> bool {
    let code = line.trim_start();
    let within = line.starts_with("    ");
    within && !["def ", "class ", "#", "raise ", "import "].iter().any(|start| code.starts_with(start))
}

fn is_rust_code(line: &str) -> bool {
    let code = line.trim_start();
    let within = line.starts_with("    ");
    within && !["//", "fn ", "pub ", "#[", "use ", "type "].iter().any(|start| code.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_changes_one_place_of_code() {
        let source = "A = 1 + 1\n\ndef f(a):\n    \"\"\"Adds 1 + 1.\"\"\"\n    # 1 + 1\n    return a + 1\n";
        let texts: Vec<String> = mutants(source)
            .into_iter()
            .map(|mutant| {
                assert_eq!(mutant.line, 6);
                mutant.text.rsplit("    ").next().unwrap().trim_end().to_owned()
            })
            .collect();
        assert_eq!(texts, ["return a - 1", "return a", "return a + 2"]);
        let source = "def f(a, b):\n    return a not in b\n";
        let texts: Vec<String> = mutants(source).into_iter().map(|mutant| mutant.text).collect();
        assert_eq!(texts, ["def f(a, b):\n    return a in b\n"]);
        let source = "const A: u8 = 1 + 1;\n/// 1 + 1\nfn f(a: u8) -> u8 {\n    // 1 + 1\n    a + 1\n}\n";
        let lines: Vec<(usize, String)> = rust_mutants(source)
            .into_iter()
            .map(|mutant| (mutant.line, mutant.text.lines().nth(4).unwrap().trim().to_owned()))
            .collect();
        assert_eq!(lines, [(5, "a - 1".to_owned()), (5, "a".to_owned()), (5, "a + 2".to_owned())]);
    }
}
