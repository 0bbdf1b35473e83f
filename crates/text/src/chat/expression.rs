//! Rewrites the expressions of a template.
//!
//! `minijinja` has no hook for operators, and computes constant expressions (`'a' * 99999999`) when
//! it loads a template. Filters are computed when the template is rendered, and can check their
//! arguments. So operators that make texts or lists, or compare them, become filters:
//!
//! | operator | rewritten |
//! |---|---|
//! | `a + b`, `a ~ b`, `a * b` | `a\|turnwise_plus(b)`, `a\|turnwise_concat(b)`, `a\|turnwise_times(b)` |
//! | `a == b`, `a < b`, `a in b` | `a\|turnwise_compared == b` and the like |
//!
//! Slices become or follow a method call.

/// Filter that replaces `+`.
pub(super) const PLUS: &str = "turnwise_plus";
/// Filter that replaces `~`.
pub(super) const CONCAT: &str = "turnwise_concat";
/// Filter that replaces `*`.
pub(super) const TIMES: &str = "turnwise_times";
/// Filter that checks the left side of a comparison.
pub(super) const COMPARED: &str = "turnwise_compared";
/// Method that replaces slices with a step.
pub(super) const SLICE: &str = "turnwise_slice";
/// Method that checks a value before a slice without a step.
pub(super) const SLICED: &str = "turnwise_sliced";

/// Words that can follow an operand in a tag.
const KEYWORDS: [&str; 14] = [
    "and",
    "as",
    "else",
    "if",
    "ignore",
    "import",
    "in",
    "not",
    "or",
    "recursive",
    "required",
    "scoped",
    "with",
    "without",
];

/// Replaces `removed` bytes at `at`.
pub(super) struct Edit {
    pub(super) at: usize,
    pub(super) removed: usize,
    pub(super) text: String,
}

/// What is known about the expressions of a tag.
pub(super) struct Scanned {
    /// In ascending order.
    pub(super) edits: Vec<Edit>,
    /// The tag's length without its closing characters.
    pub(super) end: usize,
    /// The number of operators, calls, filters, attributes and the like. `minijinja` calls itself
    /// for each of them without a limit.
    pub(super) links: usize,
}

/// Scans the tag that starts with `tag` and ends before `close`. The first word of a statement is
/// its name.
pub(super) fn scanned(tag: &str, close: &str, statement: bool) -> Scanned {
    let mut scanner = Scanner {
        tag,
        edits: Vec::new(),
        open: Vec::new(),
        segment: Segment::default(),
        before: Before::Nothing,
        name: statement,
        targets: false,
        links: 0,
    };
    let end = scanner.scan(close);
    let Scanner { mut edits, links, .. } = scanner;
    edits.sort_by_key(|edit| edit.at);
    Scanned { edits, end, links }
}

/// Returns whether a letter can be part of a name.
pub(super) fn in_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[derive(Clone, Copy)]
struct Operand {
    start: usize,
    end: usize,
    /// A filter that follows applies to the whole operand.
    closed: bool,
    /// The operand is a single string or number.
    literal: bool,
}

/// An operator whose right side is not complete.
struct Waiting {
    left: Operand,
    at: usize,
    length: usize,
    filter: Option<&'static str>,
}

/// Expression without commas, comparisons and keywords like `and`.
#[derive(Default)]
struct Segment {
    operand: Option<Operand>,
    /// By precedence: `*` and the like, `~`, `+` and `-`.
    waiting: [Option<Waiting>; 3],
}

struct Bracket {
    at: usize,
    subscript: bool,
    colons: Vec<usize>,
    outer: Segment,
}

/// What precedes a token.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// An operator, a keyword or the start of an expression.
    Nothing,
    Operand,
    /// `.` or `|`.
    Point,
    /// `is` or `is not`.
    Is,
    /// The name of a test, which an argument can follow.
    Test,
}

struct Scanner<'a> {
    tag: &'a str,
    edits: Vec<Edit>,
    open: Vec<Bracket>,
    segment: Segment,
    before: Before,
    /// The next word is the statement's name.
    name: bool,
    /// The next `in` belongs to `for`.
    targets: bool,
    links: usize,
}

impl Scanner<'_> {
    fn scan(&mut self, close: &str) -> usize {
        let (tag, mut at) = (self.tag, 0);
        while let Some(character) = tag[at..].chars().next() {
            let rest = &tag[at..];
            let sign = matches!(character, '-' | '+');
            // `}}` inside a bracket closes two objects, not the tag.
            if self.open.is_empty() && rest[usize::from(sign)..].starts_with(close) {
                at += usize::from(sign);
                break;
            }
            // The first sign belongs to the start of the tag.
            let length = if sign && at == 0 { 1 } else { self.token(at, character, rest) };
            at += length;
        }
        self.finish(false);
        at
    }

    /// Reads the token at `at`. Returns its length.
    fn token(&mut self, at: usize, character: char, rest: &str) -> usize {
        if ".|*/%~+-".contains(character) {
            self.links += 1;
        }
        let double = |text: &str| rest.starts_with(text);
        let operand = matches!(self.before, Before::Operand | Before::Test);
        match character {
            '\'' | '"' => {
                let length = string_length(rest, character);
                self.literal(at, at + length);
                return length;
            }
            '0'..='9' => {
                let length = number_length(rest);
                self.literal(at, at + length);
                return length;
            }
            _ if in_word(character) => {
                let length = rest.find(|letter: char| !in_word(letter)).unwrap_or(rest.len());
                self.word(at, &rest[..length]);
                return length;
            }
            '(' | '[' | '{' => self.opened(at, character),
            ')' | ']' | '}' => self.closed(at),
            '=' | '!' | '<' | '>' if rest[1..].starts_with('=') => {
                self.finish(true);
                return 2;
            }
            '<' | '>' => self.finish(true),
            ':' => {
                self.finish(false);
                if let Some(bracket) = self.open.last_mut() {
                    bracket.colons.push(at);
                }
            }
            ',' | '=' => self.finish(false),
            '.' | '|' => self.before = Before::Point,
            '*' if double("**") => {
                if operand {
                    self.extend(at, at + 2, false);
                    self.before = Before::Nothing;
                }
                return 2;
            }
            '*' if operand => self.operator(0, at, 1, Some(TIMES)),
            '/' if operand && double("//") => {
                self.operator(0, at, 2, None);
                return 2;
            }
            '/' | '%' if operand => self.operator(0, at, 1, None),
            '~' if operand => self.operator(1, at, 1, Some(CONCAT)),
            // A test's argument can be negative.
            '+' | '-' if self.before == Before::Test => {}
            '+' if operand => self.operator(2, at, 1, Some(PLUS)),
            '-' if operand => self.operator(2, at, 1, None),
            '-' => self.extend(at, at + 1, true),
            _ => {}
        }
        character.len_utf8()
    }

    fn word(&mut self, at: usize, word: &str) {
        let end = at + word.len();
        if std::mem::take(&mut self.name) {
            self.targets = word == "for";
            return;
        }
        if word == "is" || KEYWORDS.contains(&word) {
            self.links += 1;
        }
        match (self.before, word) {
            (Before::Is, "not") => {}
            (Before::Is, _) => {
                self.extend(at, end, true);
                self.before = Before::Test;
            }
            (Before::Operand | Before::Test, "is") => self.before = Before::Is,
            (Before::Operand, "in" | "not") | (Before::Test, "and" | "or" | "else") => {
                let comparison = matches!(word, "in" | "not");
                let targets = comparison && self.open.is_empty() && std::mem::take(&mut self.targets);
                self.finish(comparison && !targets);
            }
            (Before::Operand, _) if KEYWORDS.contains(&word) => self.finish(false),
            // `{% call(a) f() %}`: the parameters end before `f`.
            (Before::Operand, _) => {
                self.finish(false);
                self.name_or_value(at, end);
            }
            (Before::Nothing, "and" | "elif" | "else" | "if" | "in" | "not" | "or") => self.finish(false),
            _ => self.name_or_value(at, end),
        }
    }

    fn name_or_value(&mut self, at: usize, end: usize) {
        self.extend(at, end, true);
        self.before = Before::Operand;
    }

    fn literal(&mut self, at: usize, end: usize) {
        let first = self.segment.operand.is_none();
        self.name_or_value(at, end);
        if let Some(operand) = &mut self.segment.operand {
            operand.literal = first;
        }
    }

    /// Starts or extends the current operand. Filters stay applicable to all of it if `closed`.
    fn extend(&mut self, at: usize, end: usize, closed: bool) {
        let new = Operand { start: at, end, closed: true, literal: false };
        let operand = self.segment.operand.get_or_insert(new);
        operand.end = end;
        operand.closed &= closed;
        operand.literal = false;
    }

    fn opened(&mut self, at: usize, character: char) {
        let after_operand = self.before == Before::Operand;
        self.links += usize::from(after_operand);
        self.extend(at, at + 1, true);
        let outer = std::mem::take(&mut self.segment);
        let subscript = character == '[' && after_operand;
        self.open.push(Bracket { at, subscript, colons: Vec::new(), outer });
        self.before = Before::Nothing;
    }

    fn closed(&mut self, at: usize) {
        self.finish(false);
        let Some(Bracket { at: start, subscript, colons, outer }) = self.open.pop() else { return };
        self.segment = outer;
        self.name_or_value(at, at + 1);
        let tag = self.tag;
        match colons[..] {
            [_] if subscript => self.edit(start, 0, format!(".{SLICED}()")),
            [first, second] if subscript => {
                let part = |from: usize, to: usize| {
                    if tag[from + 1..to].trim().is_empty() { "none" } else { "" }
                };
                let [one, two, three] = [part(start, first), part(first, second), part(second, at)];
                self.edit(start, 1, format!(".{SLICE}({one}"));
                self.edit(first, 1, format!(",{two}"));
                self.edit(second, 1, format!(",{three}"));
                self.edit(at, 1, ")".to_owned());
            }
            _ => {}
        }
    }

    fn operator(&mut self, precedence: usize, at: usize, length: usize, filter: Option<&'static str>) {
        let Some(mut left) = self.segment.operand.take() else { return };
        for level in 0..=precedence {
            left = self.joined(level, left);
        }
        self.segment.waiting[precedence] = Some(Waiting { left, at, length, filter });
        self.before = Before::Nothing;
    }

    /// Ends the segment. A comparison follows it or not.
    fn finish(&mut self, comparison: bool) {
        if let Some(mut operand) = self.segment.operand.take() {
            for level in 0..self.segment.waiting.len() {
                operand = self.joined(level, operand);
            }
            if comparison && !operand.literal {
                self.parenthesize(operand);
                self.edit(operand.end, 0, format!("|{COMPARED}"));
            }
        }
        self.segment = Segment::default();
        self.before = Before::Nothing;
    }

    /// Joins an operand with the operator that waits for it, if any.
    fn joined(&mut self, level: usize, right: Operand) -> Operand {
        let Some(Waiting { left, at, length, filter }) = self.segment.waiting[level].take() else {
            return right;
        };
        if let Some(filter) = filter {
            self.parenthesize(left);
            self.edit(at, length, format!("|{filter}("));
            self.edit(right.end, 0, ")".to_owned());
        }
        Operand { start: left.start, end: right.end, closed: filter.is_some(), literal: false }
    }

    fn parenthesize(&mut self, operand: Operand) {
        if !operand.closed {
            self.edit(operand.start, 0, "(".to_owned());
            self.edit(operand.end, 0, ")".to_owned());
        }
    }

    fn edit(&mut self, at: usize, removed: usize, text: String) {
        self.edits.push(Edit { at, removed, text });
    }
}

fn string_length(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a number, as `minijinja` reads it: `1e+5` is one, `0x1e+5` a sum.
fn number_length(text: &str) -> usize {
    let byte = |at: usize| text.as_bytes().get(at).map_or(0, u8::to_ascii_lowercase);
    let radix = byte(0) == b'0' && matches!(byte(1), b'b' | b'o' | b'x');
    let mut at = if radix { 2 } else { 0 };
    let mut state = if radix { Number::Radix } else { Number::Integer };
    loop {
        state = match (byte(at), state) {
            (b'.', Number::Integer) => {
                let exponent = byte(at + 1) == b'e' && matches!(byte(at + 2), b'+' | b'-' | b'0'..=b'9');
                if matches!(byte(at + 1), b'a'..=b'z' | b'_') && !exponent {
                    return at;
                }
                Number::Fraction
            }
            (b'e', Number::Integer | Number::Fraction) => Number::Exponent,
            (b'+' | b'-' | b'0'..=b'9', Number::Exponent) => Number::Power,
            (b'0'..=b'9' | b'_', state) => state,
            (b'a'..=b'f', Number::Radix) if byte(1) == b'x' => Number::Radix,
            _ => return at,
        };
        at += 1;
    }
}

#[derive(Clone, Copy)]
enum Number {
    Radix,
    Integer,
    Fraction,
    /// After `e`.
    Exponent,
    Power,
}

#[cfg(test)]
mod tests {
    use super::{COMPARED, CONCAT, PLUS, TIMES, number_length, scanned};

    fn edited(tag: &str, statement: bool) -> String {
        let found = scanned(tag, "}}", statement);
        let mut text = tag[..found.end].to_owned();
        for edit in found.edits.iter().rev() {
            text.replace_range(edit.at..edit.at + edit.removed, &edit.text);
        }
        let names = [(PLUS, "P"), (CONCAT, "C"), (TIMES, "T"), (COMPARED, "X")];
        names.iter().fold(text, |text, (name, short)| text.replace(name, short))
    }

    #[test]
    fn operators_become_filters_by_precedence() {
        for (source, expected) in [
            ("a+b~c*d", "a|P(b|C(c|T(d)))"),
            ("a~b~c+d-e+f", "(a|C(b)|C(c)|P(d)-e)|P(f)"),
            ("a//b*c**d*-e", "(a//b)|T(c**d)|T(-e)"),
            (" -a**b~c", " (-a**b)|C(c)"),
            (" -a|f(b~c).d~'e' 'f'", " -a|f(b|C(c)).d|C('e' 'f')"),
            ("(a~b)~c.0", "(a|C(b))|C(c.0)"),
            ("a['b+c'][d+1].e(f)+g", "a['b+c'][d|P(1)].e(f)|P(g)"),
            ("{'a': b~c}['a']~[d*e, f]", "{'a': b|C(c)}['a']|C([d|T(e), f])"),
            ("f(*a*b, c=d~e, **g)", "f(*a|T(b), c=d|C(e), **g)"),
            ("a if b is defined else c*d", "a if b is defined else c|T(d)"),
            ("a is divisibleby 3~b", "a is divisibleby 3|C(b)"),
            ("a is eq -1+b", "a is eq -1|P(b)"),
            ("a.in~b.not~c|is", "a.in|C(b.not)|C(c|is)"),
            ("0x1e+5~1_0.5e-3+2", "0x1e|P(5|C(1_0.5e-3))|P(2)"),
            ("a\n ~\n b", "a\n |C(\n b)"),
            ("a~", "a~"),
            ("'\\'~'~\"}}\"-}}~", "'\\'~'|C(\"}}\")-"),
        ] {
            assert_eq!(edited(source, false), expected, "{source}");
        }
    }

    #[test]
    fn the_left_sides_of_comparisons_are_checked() {
        for (source, expected) in [
            ("not a+b==c~d and 'e' in f or g not in h", "not a|P(b)|X==c|C(d) and 'e' in f or g|X not in h"),
            ("a-b<c<=d", "(a-b)|X<c|X<=d"),
            ("a is not none==b", "a is not none|X==b"),
            ("f(a=b!=c, d=[e>1])", "f(a=b|X!=c, d=[e|X>1])"),
        ] {
            assert_eq!(edited(source, false), expected, "{source}");
        }
        for (source, expected) in [
            ("for a, b in c if a in d recursive", "for a, b in c if a|X in d recursive"),
            ("for a in b+c recursive", "for a in b|P(c) recursive"),
            ("call(a, b=c~d) e(f~g)", "call(a, b=c|C(d)) e(f|C(g))"),
            ("set a, b = c, d~e", "set a, b = c, d|C(e)"),
            ("if-a~b", "if-a|C(b)"),
        ] {
            assert_eq!(edited(source, true), expected, "{source}");
        }
    }

    #[test]
    fn numbers_end_where_minijinja_ends_them() {
        for (text, length) in [
            ("12+3", 2),
            ("1.5e+3-1", 6),
            ("1e5+1", 3),
            ("1.e5", 4),
            ("1.e", 1),
            ("1.real", 1),
            ("1.5.2", 3),
            ("0x1e+5", 4),
            ("0b101_0g", 7),
            ("1_0", 3),
        ] {
            assert_eq!(number_length(text), length, "{text}");
        }
    }
}
