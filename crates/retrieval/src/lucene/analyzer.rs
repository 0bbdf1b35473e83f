//! Converts text to terms like Anserini's English analyzer: Lucene 9's standard tokenizer, removal
//! of `'s`, lower-casing, 33 stop words and Porter's stemmer.
//!
//! Tokens are the longest segments between word boundaries (Unicode Standard Annex 29) that contain
//! a letter, digit, ideograph or emoji.
//!
//! Differs from Lucene: `regex-syntax` follows a newer Unicode version, so more letters and emoji
//! become tokens.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input, MatchKind};

use super::{SearchError, porter};

/// Stop words, in Lucene's order.
pub(crate) const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

const LONGEST_STOP_WORD: usize = 5;

/// Maximum token length in UTF-16 code units; longer tokens are split.
pub(crate) const MAX_TOKEN_UNITS: usize = 255;

/// Maximum token length in UTF-8 bytes: text takes at most three bytes per UTF-16 code unit.
const MAX_TOKEN_BYTES: usize = 3 * MAX_TOKEN_UNITS;

static AUTOMATON: LazyLock<Result<DFA, String>> = LazyLock::new(|| {
    DFA::builder()
        .configure(DFA::config().match_kind(MatchKind::All).skip_cache_capacity_check(true))
        .thompson(thompson::Config::new().which_captures(WhichCaptures::None))
        .build(&grammar())
        .map_err(|error| error.to_string())
});

/// Returns a regular expression for the standard tokenizer's tokens.
///
/// A token is one of the following: a run of letters, digits and the characters that join them (WB5
/// to WB13b); a run of Katakana, or of a script that needs a dictionary; an ideograph; a Hiragana
/// character; or an emoji sequence (Unicode Technical Standard 51). Marks may follow each character
/// (WB4).
pub fn grammar() -> String {
    let marks = r"[\p{wb=Format}\p{wb=Extend}\p{wb=ZWJ}]*";
    let letter = format!(r"(?:[\p{{wb=ALetter}}\p{{wb=Hebrew_Letter}}]{marks})");
    let hebrew = format!(r"(?:\p{{wb=Hebrew_Letter}}{marks})");
    let digit = format!(r"(?:[\p{{wb=Numeric}}\x{{FF10}}-\x{{FF19}}]{marks})");
    let katakana = format!(r"(?:\p{{wb=Katakana}}{marks})");
    let letter_joint = format!(r"(?:[\p{{wb=MidLetter}}\p{{wb=MidNumLet}}\p{{wb=Single_Quote}}]{marks})");
    let digit_joint = format!(r"(?:[\p{{wb=MidNum}}\p{{wb=MidNumLet}}\p{{wb=Single_Quote}}]{marks})");
    let joint = format!(r"(?:\p{{wb=ExtendNumLet}}{marks})");
    let single = format!(r"(?:\p{{wb=Single_Quote}}{marks})");
    let double = format!(r"(?:\p{{wb=Double_Quote}}{marks})");
    let part = format!(
        "(?:{katakana}(?:{joint}*{katakana})*\
         |(?:{hebrew}(?:{single}|{double}{hebrew})\
         |{digit}(?:(?:{joint}*|{digit_joint}){digit})*\
         |{letter}(?:(?:{joint}*|{letter_joint}){letter})*)+)"
    );
    let word = format!("{joint}*{part}(?:{joint}+{part})*{joint}*");
    // Line breaking class "complex context".
    let dictionary = format!(
        r"(?:(?:[[\p{{Thai}}\p{{Lao}}\p{{Myanmar}}\p{{Khmer}}\p{{Tai_Le}}\p{{New_Tai_Lue}}\p{{Tai_Tham}}\p{{Tai_Viet}}\p{{Ahom}}]&&[\p{{L}}\p{{M}}]]|[\x{{109E}}\x{{109F}}\x{{19DA}}\x{{19DE}}\x{{19DF}}\x{{1AA0}}-\x{{1AAD}}]){marks})+"
    );
    let single_characters = format!(r"[\p{{Han}}\p{{Hiragana}}]{marks}");

    // Presentation selectors are marks, too, but emoji sequences name them.
    let marks = r"[[\p{wb=Format}\p{wb=Extend}\p{wb=ZWJ}]--[\x{FE0E}\x{FE0F}]]*";
    let picture = format!(
        r"(?:[\p{{Extended_Pictographic}}[\p{{Emoji}}--[\p{{wb=Regional_Indicator}}\p{{Emoji_Modifier}}0-9\#*]]]{marks})"
    );
    let modified =
        format!(r"(?:(?:\x{{200D}}*\p{{Emoji_Modifier_Base}}{marks})?\p{{Emoji_Modifier}}{marks})");
    let element = format!(r"(?:\x{{200D}}*{picture}\x{{FE0F}}?|{modified})");
    let tags = r"[\x{E0020}-\x{E007E}]+\x{E007F}";
    let key = format!(r"[0-9\#*]{marks}\x{{FE0F}}?\x{{20E3}}{marks}");
    let flag = r"(?:\p{wb=Regional_Indicator}[\p{wb=Format}\p{wb=Extend}\p{wb=ZWJ}]*){2}";
    let emoji = format!(r"{element}(?:(?:\x{{200D}}{element})*|{tags})|{key}|{flag}");

    format!("{word}|{dictionary}|{single_characters}|{emoji}")
}

type NewScratch = Box<dyn Fn() -> Scratch + Send + Sync>;

struct Scratch {
    cache: Cache,
    stems: Stems,
}

/// A cache of each word's term (empty for stop words), because a lookup is faster than stemming.
#[derive(Default)]
struct Stems(HashMap<Box<str>, Box<str>>);

const KEPT: usize = 1 << 15;

impl Stems {
    fn term<'a>(&'a mut self, token: &mut String) -> &'a str {
        if !self.0.contains_key(token.as_str()) {
            if self.0.len() >= KEPT {
                self.0.clear();
            }
            let word: Box<str> = token.as_str().into();
            finish(token);
            self.0.insert(word.clone(), token.as_str().into());
            return self.0.get(&word).map_or("", AsRef::as_ref);
        }
        self.0.get(token.as_str()).map_or("", AsRef::as_ref)
    }
}

fn finish(token: &mut String) {
    if token.len() <= LONGEST_STOP_WORD && STOP_WORDS.contains(&token.as_str()) {
        token.clear();
    } else {
        porter::stem(token);
    }
}

/// Converts texts to terms. A clone starts with an empty cache, so sharing one analyzer is faster.
pub struct Analyzer {
    automaton: &'static DFA,
    scratches: Pool<Scratch, NewScratch>,
}

impl std::fmt::Debug for Analyzer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Analyzer").finish_non_exhaustive()
    }
}

impl Clone for Analyzer {
    fn clone(&self) -> Self {
        Self::over(self.automaton)
    }
}

impl Analyzer {
    /// Creates an analyzer, compiling its grammar.
    ///
    /// # Errors
    /// Returns [`SearchError::Grammar`] if the built-in grammar does not compile.
    pub fn new() -> Result<Self, SearchError> {
        match &*AUTOMATON {
            Ok(automaton) => Ok(Self::over(automaton)),
            Err(reason) => Err(SearchError::Grammar { reason: reason.clone() }),
        }
    }

    fn over(automaton: &'static DFA) -> Self {
        let new = || Scratch { cache: automaton.create_cache(), stems: Stems::default() };
        Self { automaton, scratches: Pool::new(Box::new(new)) }
    }

    /// Returns a text's terms in order, with repetitions.
    pub fn terms(&self, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        self.each(text, |_, term| terms.push(term.to_owned()));
        terms
    }

    pub(crate) fn each(&self, text: &str, mut sink: impl FnMut(std::ops::Range<usize>, &str)) {
        let mut scratch = self.scratches.get();
        let Scratch { cache, stems } = &mut *scratch;
        let mut token = String::new();
        let mut start = 0;
        while start < text.len() {
            if text.as_bytes()[start] == b' ' {
                start += 1;
                continue;
            }
            let plain = plain_word(text.as_bytes(), start);
            let Some(end) = plain.or_else(|| longest_token(self.automaton, cache, text, start)) else {
                start = text.ceil_char_boundary(start + 1);
                continue;
            };
            let word = without_possessive(&text[start..end]);
            token.clear();
            let term = if word.is_ascii() {
                token.push_str(word);
                token.make_ascii_lowercase();
                stems.term(&mut token)
            } else {
                token.extend(word.chars().map(lower));
                finish(&mut token);
                token.as_str()
            };
            if !term.is_empty() {
                sink(start..end, term);
            }
            start = end;
        }
    }
}

/// Returns the end of a run of ASCII letters and digits that the grammar could not extend: a
/// shortcut for most tokens.
fn plain_word(text: &[u8], start: usize) -> Option<usize> {
    // A longer run would be counted again for each token.
    let reach = text[start..].iter().take(MAX_TOKEN_UNITS + 1);
    let length = reach.take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if length == 0 || length > MAX_TOKEN_UNITS {
        return None;
    }
    let end = start + length;
    let plain = |byte: Option<&u8>| byte.is_none_or(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric());
    let ends = match text.get(end) {
        Some(b'_') => false,
        // These join words if a letter or digit follows.
        Some(b'.' | b':' | b',' | b';' | b'\'') => plain(text.get(end + 1)),
        other => plain(other),
    };
    ends.then_some(end)
}

fn longest_token(automaton: &DFA, cache: &mut Cache, text: &str, start: usize) -> Option<usize> {
    // One more character tells tokens that just fit from longer ones.
    let reach = text.floor_char_boundary(start + MAX_TOKEN_BYTES + 4);
    let mut find = |end: usize| {
        let input = Input::new(text).span(start..end).anchored(Anchored::Yes);
        // Fails only in configurations not used here.
        automaton.try_search_fwd(cache, &input).ok().flatten().map(|found| found.offset())
    };
    let end = find(reach)?;
    let mut units = 0;
    for (offset, character) in text[start..end].char_indices() {
        units += character.len_utf16();
        if units > MAX_TOKEN_UNITS {
            return find(start + offset);
        }
    }
    Some(end)
}

/// Removes a final `'s`, in which the apostrophe may be any of three characters.
fn without_possessive(token: &str) -> &str {
    let Some(owner) = token.strip_suffix(['s', 'S']) else { return token };
    owner.strip_suffix(['\'', '\u{2019}', '\u{FF07}']).unwrap_or(token)
}

/// Lower-cases a character to a single character, as Java does.
fn lower(character: char) -> char {
    character.to_lowercase().next().unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_end_where_the_grammar_says() {
        let Ok(automaton) = &*AUTOMATON else { panic!("no grammar") };
        let mut cache = automaton.create_cache();
        // Up to two characters after a word matter.
        let alphabet = ["a", "S", "7", ".", ",", ":", ";", "'", "_", " ", "-", "é", "\u{300}", "\u{20e3}"];
        let (mut plain, mut all) = (0, 0);
        for code in 0..alphabet.len().pow(5) {
            let mut rest = code;
            let mut text = String::new();
            for _ in 0..5 {
                text.push_str(alphabet[rest % alphabet.len()]);
                rest /= alphabet.len();
            }
            all += 1;
            if let Some(end) = plain_word(text.as_bytes(), 0) {
                plain += 1;
                assert_eq!(Some(end), longest_token(automaton, &mut cache, &text, 0), "{text:?}");
            }
        }
        assert!(plain * 12 > all, "{plain} of {all}");
    }

    #[test]
    fn a_word_that_is_forgotten_has_the_same_term_again() {
        let analyzer = Analyzer::new().unwrap();
        assert_eq!(analyzer.terms("running the"), ["run"]);
        let many: Vec<String> = (0..=KEPT).map(|number| format!("w{number}")).collect();
        assert_eq!(analyzer.terms(&many.join(" ")).len(), KEPT + 1);
        assert_eq!(analyzer.terms("Running THE running"), ["run", "run"]);
    }

    fn terms(text: &str) -> Vec<String> {
        Analyzer::new().unwrap().terms(text)
    }

    #[test]
    fn words_numbers_and_their_joints() {
        assert_eq!(
            terms("Men's slim-fit shirts, 3.5mm & 1,000.50 (brand:Black) don't U.S.A. a_b x__2 _ -- !"),
            [
                "men",
                "slim",
                "fit",
                "shirt",
                "3.5mm",
                "1,000.50",
                "brand:black",
                "don't",
                "u.s.a",
                "a_b",
                "x__2"
            ]
        );
        assert_eq!(terms("end. next 5. 6 5.a a.5"), ["end", "next", "5", "6", "5", "5"]);
    }

    #[test]
    fn stop_words_go_and_only_they() {
        assert_eq!(terms(&STOP_WORDS.join(" ")), Vec::<String>::new());
        assert_eq!(STOP_WORDS.iter().map(|word| word.len()).max(), Some(LONGEST_STOP_WORD));
        assert_eq!(terms("The WITH which from"), ["which", "from"]);
        // Stop words are dropped between the possessive filter and the stemmer.
        assert_eq!(terms("ands it's its"), ["and", "it"]);
    }

    #[test]
    fn other_scripts_and_pictures() {
        assert_eq!(
            terms("食品 ひら カタカナ 한국어 ภาษา"),
            ["食", "品", "ひ", "ら", "カタカナ", "한국어", "ภาษา"]
        );
        assert_eq!(
            terms("✔️good 👍🏽👨\u{200d}💼 🇫🇷🇩🇪 1⃣ ★"),
            ["✔️", "good", "👍🏽", "👨\u{200d}💼", "🇫🇷", "🇩🇪", "1⃣", "★"]
        );
        assert_eq!(terms("Décor WOMEN\u{2019}S İ"), ["décor", "women", "i"]);
    }

    #[test]
    fn long_tokens_are_cut() {
        let lengths =
            |text: &str| terms(text).iter().map(|term| term.encode_utf16().count()).collect::<Vec<_>>();
        assert_eq!(lengths(&"x".repeat(255)), [255]);
        assert_eq!(lengths(&"x".repeat(600)), [255, 255, 90]);
        assert_eq!(lengths(&"𝐱".repeat(200)), [254, 146]);
    }
}
