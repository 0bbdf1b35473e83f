//! The parts of Python that are needed to reproduce the texts of environments written in Python.

pub(crate) mod method;
pub mod values;

use rand_mt::Mt;
use turnwise_core::python::json_character;
pub use turnwise_core::python::{float, quoted};

/// Returns true for whitespace in Python's sense: Unicode whitespace and four ASCII separators.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str.strip`
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Appends a string as `json.dumps` does, with UTF-16 escapes outside printable ASCII.
pub(crate) fn json_string(out: &mut String, text: &str) {
    out.push('"');
    text.chars().for_each(|character| json_character(out, character, true));
    out.push('"');
}

/// Returns `str((a, b))`, such as `('a', 'b')`.
pub fn pair(first: &str, second: &str) -> String {
    let mut out = String::with_capacity(first.len() + second.len() + 8);
    out.push('(');
    quoted(&mut out, first);
    out.push_str(", ");
    quoted(&mut out, second);
    out.push(')');
    out
}

/// `random.Random` (Mersenne Twister), bit-identical to CPython 3 for non-negative integer seeds.
#[derive(Clone, Debug)]
pub struct PythonRandom(Mt);

impl PythonRandom {
    /// `random.seed(seed)`
    pub fn new(seed: u64) -> Self {
        let low = seed as u32;
        let high = (seed >> 32) as u32;
        Self(if high == 0 { Mt::new_with_key([low]) } else { Mt::new_with_key([low, high]) })
    }

    /// `random.random()`, 53 bits in `[0, 1)`
    pub fn random(&mut self) -> f64 {
        let high = self.0.next_u32() >> 5;
        let low = self.0.next_u32() >> 6;
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `random.uniform(a, b)`
    pub fn uniform(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * self.random()
    }

    /// `random.randrange(n)` for `0 < n < 2^32`
    pub fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let drawn = (self.0.next_u32() >> (32 - bits.clamp(1, 32))) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `random.randint(low, high)` for `low <= high`, both included
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

    /// `random.sample(range(n), 2)` for `2 <= n <= 21`; for larger `n`, Python uses another
    /// algorithm.
    pub(crate) fn sample_two(&mut self, n: usize) -> [usize; 2] {
        let first = self.below(n);
        let second = self.below(n - 1);
        [first, if second == first { n - 1 } else { second }]
    }

    /// `random.shuffle(items)`
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
    fn pairs_and_json_strings_are_written_as_python_does() {
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
