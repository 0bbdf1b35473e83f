//! Python functions that determine the text of the original environments.

use std::fmt::Write as _;

use rand_mt::Mt;

/// Below this number, a float never has two equally near shortest decimal forms.
const LEAST_TIE: f64 = 562_949_953_421_312.0;

/// Returns the `repr` of a Python float, such as `100.0`, `1e+16`, `1e-05`.
pub fn float(value: f64) -> String {
    let mut scientific = format!("{value:e}");
    if value.abs() >= LEAST_TIE {
        // If two shortest forms are equally near, Python takes the even digit.
        let digits =
            scientific.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
        let even = format!("{value:.*e}", digits.saturating_sub(1));
        if even.parse() == Ok(value) {
            scientific = even;
        }
    }
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return python_word(value) };
    let Ok(exponent) = exponent.parse::<i32>() else { return python_word(value) };
    if (-4..16).contains(&exponent) {
        let plain =
            if value.abs() >= LEAST_TIE { positional(mantissa, exponent) } else { format!("{value}") };
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// Converts scientific to positional notation, for numbers of at least 1.
fn positional(mantissa: &str, exponent: i32) -> String {
    let (sign, digits) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
    let mut digits = digits.replace('.', "");
    let whole = usize::try_from(exponent).unwrap_or(0) + 1;
    while digits.len() < whole {
        digits.push('0');
    }
    if digits.len() > whole {
        digits.insert(whole, '.');
    }
    format!("{sign}{digits}")
}

fn python_word(value: f64) -> String {
    let word = if value.is_nan() {
        "nan"
    } else if value > 0.0 {
        "inf"
    } else {
        "-inf"
    };
    word.to_owned()
}

/// Matches what Python's `str.strip` removes: Unicode white space and four ASCII separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Python's `str.strip`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Appends a string as `json.dumps` writes it, with `\uXXXX` (UTF-16) outside printable ASCII.
pub fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Returns `str((a, b))` of two strings, such as `('a', 'b')`.
pub fn pair(first: &str, second: &str) -> String {
    let mut out = String::with_capacity(first.len() + second.len() + 8);
    out.push('(');
    quoted(&mut out, first);
    out.push_str(", ");
    quoted(&mut out, second);
    out.push(')');
    out
}

/// Appends the `repr` of a string, in double quotes only if it contains single quotes and no double
/// ones. Outside ASCII, Python escapes more characters, but readers treat both forms alike.
pub(crate) fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// Python's `random.Random`: the Mersenne Twister and the methods that WebShop calls, equal to
/// CPython 3 bit for bit.
#[derive(Clone, Debug)]
pub struct PythonRandom(Mt);

impl PythonRandom {
    /// `random.seed(seed)`.
    pub fn new(seed: u64) -> Self {
        let low = seed as u32;
        let high = (seed >> 32) as u32;
        Self(if high == 0 { Mt::new_with_key([low]) } else { Mt::new_with_key([low, high]) })
    }

    /// `random.random()`: 53 bits in `[0, 1)`.
    pub fn random(&mut self) -> f64 {
        let high = self.0.next_u32() >> 5;
        let low = self.0.next_u32() >> 6;
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `random.uniform(a, b)`.
    pub fn uniform(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * self.random()
    }

    /// `random.randrange(n)` for `0 < n < 2^32`.
    pub fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let drawn = (self.0.next_u32() >> (32 - bits.clamp(1, 32))) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `random.randint(low, high)`, both ends included, for `low <= high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = (high - low).saturating_add(1);
        let bits = u64::BITS - width.leading_zeros();
        loop {
            // Python draws the low word first; the last word gives the high bits.
            let mut drawn = if bits > 32 { u64::from(self.0.next_u32()) } else { 0 };
            let last = if bits > 32 { bits - 32 } else { bits };
            drawn |= u64::from(self.0.next_u32() >> (32 - last)) << (bits - last);
            if drawn < width {
                return low + drawn;
            }
        }
    }

    /// `random.sample(range(n), 2)` for `2 <= n <= 21`, where Python draws from a shrinking pool.
    pub fn sample_two(&mut self, n: usize) -> [usize; 2] {
        let first = self.below(n);
        let second = self.below(n - 1);
        [first, if second == first { n - 1 } else { second }]
    }

    /// `random.shuffle(items)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        let cases = [
            (100.0, "100.0"),
            (24.35, "24.35"),
            (0.1 + 0.2, "0.30000000000000004"),
            (2.0 / 7.0, "0.2857142857142857"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1_234_567_891e6 + 0.25, "1234567891000000.2"),
            (-1_234_567_891e6 - 0.75, "-1234567891000000.8"),
            (9_007_199_254_740_992.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (-2.5e22, "-2.5e+22"),
            (0.0, "0.0"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_does() {
        for (text, expected) in [
            ("plain", "'plain'"),
            ("it's", "\"it's\""),
            ("it's \"so\"", "'it\\'s \"so\"'"),
            ("a\nb\\\u{7f}é", "'a\\nb\\\\\\x7fé'"),
            ("\0\t\r\u{1b}", "'\\x00\\t\\r\\x1b'"),
            ("\u{9f}\u{a0}¡¬\u{ad}®", "'\\x9f\\xa0¡¬\\xad®'"),
        ] {
            let mut out = String::new();
            quoted(&mut out, text);
            assert_eq!(out, expected);
        }
        assert_eq!(pair("color", "152- green"), "('color', '152- green')");
        assert_eq!(pair("it's", "6\" wide"), r#"("it's", '6" wide')"#);
        assert_eq!(pair("it's 6\"", "a\\b\t"), r#"('it\'s 6"', 'a\\b\t')"#);
        let mut out = String::new();
        json_string(&mut out, "caf\u{e9} \"x\" \u{1f600}");
        assert_eq!(out, r#""caf\u00e9 \"x\" \ud83d\ude00""#);
    }

    /// `import random; random.seed(42); [random.random(), random.uniform(3, 9), random.sample(range(4), 2), ...]`
    #[test]
    fn draws_are_those_of_cpython() {
        let mut random = PythonRandom::new(42);
        assert_eq!(random.random(), 0.639_426_798_457_883_7);
        assert_eq!(random.uniform(3.0, 9.0), 3.150_064_531_336_001_4);
        let samples: Vec<[usize; 2]> = (0..4).map(|_| random.sample_two(4)).collect();
        assert_eq!(samples, SAMPLES);
        let mut items: Vec<usize> = (0..12).collect();
        random.shuffle(&mut items);
        assert_eq!(items, SHUFFLED);
        assert_eq!(PythonRandom::new(7_000_000_000).random(), 0.307_495_713_409_323_47);
    }

    /// `import random; random.seed(7); [random.randint(..), ..]`
    #[test]
    fn integers_of_more_than_a_word_are_those_of_cpython() {
        let mut random = PythonRandom::new(7);
        let drawn = [(100_000_000_000, 999_999_999_999), (10_000, 99_999), (0, 1 << 33), (5, 5)]
            .map(|(l, h)| random.between(l, h));
        assert_eq!(drawn, [534_439_589_175, 95_319, 207_388_624, 5]);
    }

    const SAMPLES: [[usize; 2]; 4] = [[2, 0], [1, 0], [0, 2], [0, 2]];
    const SHUFFLED: [usize; 12] = [11, 7, 2, 9, 5, 4, 8, 3, 1, 10, 0, 6];
}
