//! Pre-tokenization for tokenizers trained by this crate.
//!
//! `tokenizer.json` contains a regex for other programs. This crate uses an equivalent scanner,
//! because a backtracking engine is about forty times slower.

use std::fmt::Write as _;

/// The regex's alternatives after those for phrases; together, they match every character. White
/// space is listed character by character, because regex engines interpret `\s` differently.
const TAIL: &str = r"\n| ?[a-z]+ [0-9]+| ?[A-Za-z']+| ?[0-9]+| ?[^\x09-\x0D\x20A-Za-z0-9]+|[\x09-\x0D\x20]";

/// Like [`TAIL`], but with a name and its number as separate pieces.
const TAIL_APART: &str = r"\n| ?[A-Za-z']+| ?[0-9]+| ?[^\x09-\x0D\x20A-Za-z0-9]+|[\x09-\x0D\x20]";

/// Splits text into phrases, `name number` (unless `apart`), words, numbers and other characters.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    apart: bool,
    phrases: Vec<String>,
    by_first_byte: Vec<Vec<usize>>,
}

impl Scanner {
    pub(super) fn new(phrases: &[String], apart: bool) -> Self {
        let mut phrases: Vec<String> = phrases.iter().filter(|phrase| !phrase.is_empty()).cloned().collect();
        phrases.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        phrases.dedup();
        let mut by_first_byte = vec![Vec::new(); 256];
        for (index, phrase) in phrases.iter().enumerate() {
            by_first_byte[usize::from(phrase.as_bytes()[0])].push(index);
        }
        Self { apart, phrases, by_first_byte }
    }

    pub(super) fn phrases(&self) -> &[String] {
        &self.phrases
    }

    pub(super) fn regex(&self) -> String {
        // Many engines treat `\<` and `\>` as word boundaries.
        self.spelt(|character| character.is_ascii_control() || matches!(character, '<' | '>'))
    }

    /// Returns the regex that earlier versions of this crate wrote, in which `\<` and `\>` are
    /// ambiguous.
    fn earlier_regex(&self) -> String {
        self.spelt(|character| character.is_ascii_control())
    }

    fn spelt(&self, as_number: fn(char) -> bool) -> String {
        let mut regex = String::new();
        for phrase in &self.phrases {
            for character in phrase.chars() {
                if character.is_ascii_alphanumeric() || character == ' ' || !character.is_ascii() {
                    regex.push(character);
                } else if as_number(character) {
                    let _ = write!(regex, "\\x{:02X}", character as u32);
                } else {
                    regex.push('\\');
                    regex.push(character);
                }
            }
            regex.push('|');
        }
        regex + if self.apart { TAIL_APART } else { TAIL }
    }

    pub(super) fn from_regex(regex: &str) -> Option<Self> {
        // Neither tail is a suffix of the other.
        let joined = regex.strip_suffix(TAIL).map(|head| (head, false));
        let (head, apart) = joined.or_else(|| Some((regex.strip_suffix(TAIL_APART)?, true)))?;
        let mut phrases = vec![String::new()];
        let mut characters = head.chars();
        while let Some(character) = characters.next() {
            let current = phrases.last_mut()?;
            match character {
                '|' => phrases.push(String::new()),
                '\\' => match characters.next()? {
                    'x' => {
                        let digits: String = characters.by_ref().take(2).collect();
                        current.push(char::from(u8::from_str_radix(&digits, 16).ok()?));
                    }
                    escaped => current.push(escaped),
                },
                _ => current.push(character),
            }
        }
        let scanner = Self::new(&phrases, apart);
        (scanner.regex() == regex || scanner.earlier_regex() == regex).then_some(scanner)
    }

    /// Returns the first piece's length in bytes; 0 only for an empty text.
    pub(super) fn piece_len(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let Some(&first) = bytes.first() else { return 0 };
        for &index in &self.by_first_byte[usize::from(first)] {
            if bytes.starts_with(self.phrases[index].as_bytes()) {
                return self.phrases[index].len();
            }
        }
        let run = |start: usize, belongs: fn(u8) -> bool| {
            start + bytes[start..].iter().take_while(|&&byte| belongs(byte)).count()
        };
        let start = usize::from(first == b' ');
        let name = run(start, |byte| byte.is_ascii_lowercase());
        if !self.apart && name > start && bytes.get(name) == Some(&b' ') {
            let number = run(name + 1, |byte| byte.is_ascii_digit());
            if number > name + 1 {
                return number;
            }
        }
        // At most one kind can start here.
        for kind in [is_word, is_digit, is_other] {
            let end = run(start, kind);
            if end > start {
                return end;
            }
        }
        1
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'\''
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// Returns true unless the byte is a letter, a digit or white space. Non-ASCII bytes count as other
/// characters, so that no character is split.
fn is_other(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric() && !matches!(byte, 0x09..=0x0D | 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'a>(scanner: &Scanner, mut text: &'a str) -> Vec<&'a str> {
        let mut pieces = Vec::new();
        while !text.is_empty() {
            let (piece, rest) = text.split_at(scanner.piece_len(text));
            pieces.push(piece);
            text = rest;
        }
        pieces
    }

    #[test]
    fn the_order_of_the_alternatives() {
        let phrases = ["You arrive at".into(), ", and a".into(), "You".into(), "You".into()];
        let scanner = Scanner::new(&phrases, false);
        assert_eq!(
            pieces(&scanner, "You arrive at shelf 12. On it: a mug 1, and a pan 2.\n\nDon't  go 3!? é9"),
            [
                "You arrive at",
                " shelf 12",
                ".",
                " On",
                " it",
                ":",
                " a",
                " mug 1",
                ", and a",
                " pan 2",
                ".",
                "\n",
                "\n",
                "Don't",
                " ",
                " go 3",
                "!?",
                " é",
                "9"
            ]
        );
    }

    #[test]
    fn names_and_split_numbers() {
        let scanner = Scanner::new(&["size 1".into()], true);
        assert_eq!(
            pieces(&scanner, "lark 57, size 12 for 60.00"),
            ["lark", " 57", ",", " size", " 12", " for", " 60", ".", "00"]
        );
        assert_eq!(pieces(&Scanner::new(&[], false), "lark 57 for"), ["lark 57", " for"]);
    }

    #[test]
    fn a_scanner_comes_back_from_its_regex() {
        let phrases: Vec<String> =
            ["a|b", "\\x", "tab\there", "line\n", "é (x)*", "plain words", "<a>", "next >"]
                .map(String::from)
                .to_vec();
        for apart in [false, true] {
            let scanner = Scanner::new(&phrases, apart);
            assert!(!scanner.regex().contains("\\<") && scanner.regex().contains(r"\x3Ca\x3E"));
            assert!(scanner.earlier_regex().contains(r"\<a\>"));
            for regex in [scanner.regex(), scanner.earlier_regex()] {
                let again = Scanner::from_regex(&regex).unwrap();
                assert_eq!((scanner.phrases(), apart), (again.phrases(), again.apart));
            }
        }
        assert!(Scanner::from_regex(r"\p{L}+").is_none());
        assert!(Scanner::from_regex(&format!("a+|{TAIL}")).is_none());
    }
}
