//! Porter's stemmer, with the results of Lucene's `PorterStemFilter`.
//!
//! Source: M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980).
//!
//! Differs from the paper in the same way as Lucene: words of one or two UTF-16 code units are
//! unchanged, `bli` becomes `ble` (in the paper, `abli` becomes `able`), and `logi` becomes `log`.
//! Porter2 gives a different stem for one word in twenty.
//!
//! As in Java, the units in which the stemmer works are UTF-16 code units. The vowels are
//! `a e i o u`, and `y` after a consonant; all other units are consonants.

/// Replacements of the third and fourth steps, for a stem measure above 0.
const DOUBLE_SUFFIXES: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];
const SHORT_SUFFIXES: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];
/// Suffixes that are removed if the measure is above 1. `ement` and `ment` come before `ent`,
/// because both end in `ent`.
const LAST_SUFFIXES: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

pub(super) fn stem(word: &mut String) {
    if word.len() <= 2 {
        return;
    }
    let mut stemmer = Stemmer { units: word.encode_utf16().collect() };
    if stemmer.units.len() <= 2 {
        return;
    }
    stemmer.plurals();
    stemmer.past_and_gerund();
    stemmer.final_y();
    stemmer.replace_first(&DOUBLE_SUFFIXES);
    stemmer.replace_first(&SHORT_SUFFIXES);
    stemmer.last_suffix();
    stemmer.final_e();
    if word.is_ascii() {
        // Stems of ASCII words are ASCII.
        word.clear();
        word.extend(stemmer.units.iter().map(|&unit| char::from(unit as u8)));
    } else if let Ok(stemmed) = String::from_utf16(&stemmer.units) {
        *word = stemmed;
    }
}

struct Stemmer {
    units: Vec<u16>,
}

impl Stemmer {
    fn consonant(&self, index: usize) -> bool {
        match u8::try_from(self.units[index]) {
            Ok(b'a' | b'e' | b'i' | b'o' | b'u') => false,
            Ok(b'y') => index == 0 || !self.consonant(index - 1),
            _ => true,
        }
    }

    /// Returns how often a consonant follows a vowel in the first `length` units.
    fn measure(&self, length: usize) -> usize {
        (1..length).filter(|&index| self.consonant(index) && !self.consonant(index - 1)).count()
    }

    fn vowel_in(&self, length: usize) -> bool {
        (0..length).any(|index| !self.consonant(index))
    }

    fn doubled(&self, length: usize) -> bool {
        length >= 2 && self.units[length - 1] == self.units[length - 2] && self.consonant(length - 1)
    }

    /// Returns true if the first `length` units end in a consonant, a vowel, and a consonant other
    /// than `w`, `x` or `y`.
    fn short_end(&self, length: usize) -> bool {
        length >= 3
            && self.consonant(length - 1)
            && !self.consonant(length - 2)
            && self.consonant(length - 3)
            && ![b'w', b'x', b'y'].map(u16::from).contains(&self.units[length - 1])
    }

    fn before(&self, suffix: &str) -> Option<usize> {
        let start = self.units.len().checked_sub(suffix.len())?;
        self.units[start..].iter().copied().eq(suffix.bytes().map(u16::from)).then_some(start)
    }

    fn replace(&mut self, start: usize, end: &str) {
        self.units.truncate(start);
        self.units.extend(end.bytes().map(u16::from));
    }

    fn last(&self) -> Option<u16> {
        self.units.last().copied()
    }

    fn plurals(&mut self) {
        if self.last() != Some(u16::from(b's')) {
            return;
        }
        let length = self.units.len();
        if self.before("sses").is_some() {
            self.units.truncate(length - 2);
        } else if let Some(start) = self.before("ies") {
            self.replace(start, "i");
        } else if self.units[length - 2] != u16::from(b's') {
            self.units.truncate(length - 1);
        }
    }

    fn past_and_gerund(&mut self) {
        if let Some(start) = self.before("eed") {
            if self.measure(start) > 0 {
                self.replace(start, "ee");
            }
            return;
        }
        let Some(start) = self.before("ed").or_else(|| self.before("ing")) else { return };
        if !self.vowel_in(start) {
            return;
        }
        self.units.truncate(start);
        if ["at", "bl", "iz"].iter().any(|end| self.before(end).is_some()) {
            self.units.push(u16::from(b'e'));
        } else if self.doubled(start) {
            if ![b'l', b's', b'z'].map(u16::from).contains(&self.units[start - 1]) {
                self.units.truncate(start - 1);
            }
        } else if self.measure(start) == 1 && self.short_end(start) {
            self.units.push(u16::from(b'e'));
        }
    }

    fn final_y(&mut self) {
        if let Some(start) = self.before("y")
            && self.vowel_in(start)
        {
            self.replace(start, "i");
        }
    }

    /// Replaces the first suffix that matches, if the stem's measure is above 0. Later suffixes are
    /// never tried.
    fn replace_first(&mut self, suffixes: &[(&str, &str)]) {
        let found = suffixes.iter().find_map(|&(suffix, end)| Some((self.before(suffix)?, end)));
        if let Some((start, end)) = found
            && self.measure(start) > 0
        {
            self.replace(start, end);
        }
    }

    fn last_suffix(&mut self) {
        let found = LAST_SUFFIXES.iter().find_map(|&suffix| {
            let start = self.before(suffix)?;
            let before = start.checked_sub(1).map(|index| self.units[index]);
            let allowed =
                suffix != "ion" || [b's', b't'].iter().any(|&letter| before == Some(u16::from(letter)));
            allowed.then_some(start)
        });
        if let Some(start) = found
            && self.measure(start) > 1
        {
            self.units.truncate(start);
        }
    }

    fn final_e(&mut self) {
        let length = self.units.len();
        let measure = self.measure(length);
        if self.last() == Some(u16::from(b'e'))
            && (measure > 1 || measure == 1 && !self.short_end(length - 1))
        {
            self.units.truncate(length - 1);
        }
        let shorter = self.units.len();
        if self.last() == Some(u16::from(b'l')) && self.doubled(shorter) && measure > 1 {
            self.units.truncate(shorter - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    fn stem(word: &str) -> String {
        let mut word = word.to_owned();
        super::stem(&mut word);
        word
    }

    #[test]
    fn the_examples_of_the_paper_come_out() {
        let examples = [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "ti"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("tanned", "tan"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("fizzed", "fizz"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("vietnamization", "vietnam"),
            ("triplicate", "triplic"),
            ("hopefulness", "hope"),
            ("goodness", "good"),
            ("replacement", "replac"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controlling", "control"),
            ("roll", "roll"),
        ];
        for (word, expected) in examples {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn the_changes_of_the_program_are_there() {
        assert_eq!(stem("as"), "as");
        assert_eq!(stem("possibly"), "possibl");
        assert_eq!(stem("archaeology"), "archaeolog");
        assert_eq!(stem("skies"), "ski");
        assert_eq!(stem("dying"), "dy");
        assert_eq!(stem("news"), "new");
    }

    #[test]
    fn other_scripts_are_consonants() {
        assert_eq!(stem("décors"), "décor");
        assert_eq!(stem("és"), "és");
        assert_eq!(stem("𝐚s"), "𝐚");
        assert_eq!(stem("琥珀ed"), "琥珀ed");
    }
}
