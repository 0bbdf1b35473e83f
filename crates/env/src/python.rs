//! The few behaviours of Python that the original's observable text depends on.

use std::fmt::Write as _;

use rand_mt::Mt;

/// Returns a number as Python's `repr` writes a float: the shortest digits that read back to it, `100.0`,
/// `1e+16`, `1e-05`.
pub fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return python_word(value) };
    let Ok(exponent) = exponent.parse::<i32>() else { return python_word(value) };
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
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

/// Returns true for a character that Python's `str.strip` removes: Unicode's white space and four
/// separators of ASCII.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Python's `str.strip`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// A string as `json.dumps` writes it: in double quotes, everything outside of printable ASCII as `\uXXXX`, in UTF-16.
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
                    // Writing into a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Returns a pair of strings as `str((a, b))` writes it: `('a', 'b')`.
pub fn pair(first: &str, second: &str) -> String {
    let mut out = String::with_capacity(first.len() + second.len() + 8);
    out.push('(');
    quoted(&mut out, first);
    out.push_str(", ");
    quoted(&mut out, second);
    out.push(')');
    out
}

/// Writes a string like Python's `repr`: in single quotes, unless it has single quotes and no
/// double quotes. Non-printable characters are escaped. Outside ASCII, Python's set of printable
/// characters is smaller, but the comparison treats such characters alike.
fn quoted(out: &mut String, text: &str) {
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

/// Python's `random.Random`: the Mersenne Twister with the draws that WebShop makes.
///
/// Equal to CPython 3 to the bit (`seed` with a non-negative integer, `random`, `uniform`, `sample`, `shuffle`).
#[derive(Debug)]
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

    /// `random.sample(range(n), 2)` for `2 <= n <= 21`, where Python draws from a shrinking pool.
    pub fn sample_two(&mut self, n: usize) -> [usize; 2] {
        let first = self.below(n);
        let second = self.below(n - 1);
        // The last of the pool moves to the place of the first drawn.
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
        // The same table as in `turnwise_text`, which has the rule too.
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
    const SAMPLES: [[usize; 2]; 4] = [[2, 0], [1, 0], [0, 2], [0, 2]];
    const SHUFFLED: [usize; 12] = [11, 7, 2, 9, 5, 4, 8, 3, 1, 10, 0, 6];
}
