//! Small defects: one typical mistake in a source text.

const MISTAKES: [(&str, &str); 38] = [
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) text: String,
    /// Line of the defect, from 1.
    pub(super) line: usize,
}

/// Returns all distinct texts with one mistake in a function, in source order.
pub(super) fn mutants(source: &str) -> Vec<Mutant> {
    let mut found: Vec<Mutant> = Vec::new();
    let mut in_text = false;
    let mut start = 0;
    for (number, line) in source.split_inclusive('\n').enumerate() {
        let quotes = line.matches("\"\"\"").count();
        let code = !in_text && quotes == 0 && is_code(line);
        in_text ^= quotes % 2 == 1;
        for (right, wrong) in MISTAKES.iter().filter(|_| code) {
            for (place, _) in line.match_indices(right) {
                let at = start + place;
                let text = [&source[..at], wrong, &source[at + right.len()..]].concat();
                // Two mistakes may give the same text: `not in` without `not` is `in`.
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
    }
}
