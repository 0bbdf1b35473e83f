//! Generates text with realistic word frequencies: a third from the 120 most common words, the rest
//! by Zipf's law over a vocabulary of two million, so that new words keep appearing.

use turnwise_retrieval::Passage;

const COMMON: [&str; 20] = [
    "the", "of", "and", "in", "to", "was", "is", "for", "as", "on", "with", "by", "he", "that", "at", "from",
    "his", "it", "an", "were",
];
const VOCABULARY: f64 = 2e6;
const WORDS: usize = 100;

/// A generator of 64 random bits (SplitMix64), enough for text.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a rank with frequency 1 / rank.
    fn rank(&mut self) -> u64 {
        (VOCABULARY.powf(self.uniform())) as u64
    }
}

/// Appends a pronounceable word for a rank; rarer words are longer.
fn word(rank: u64, out: &mut String) {
    const SYLLABLES: [&str; 32] = [
        "ka", "ri", "mo", "ten", "sa", "lu", "ver", "no", "di", "pe", "go", "hal", "mi", "ra", "to", "ne",
        "bo", "shi", "cor", "el", "ma", "vi", "du", "ster", "fe", "wa", "lin", "qua", "za", "ber", "so",
        "ti",
    ];
    let mut rest = rank + 32;
    while rest > 0 {
        out.push_str(SYLLABLES[(rest % 32) as usize]);
        rest /= 32;
    }
}

fn text(random: &mut Random, words: usize, out: &mut String) {
    for index in 0..words {
        if index > 0 {
            out.push(' ');
        }
        if random.uniform() < 0.35 {
            out.push_str(COMMON[(random.next() % 20) as usize]);
        } else {
            word(random.rank(), out);
        }
        if random.next().is_multiple_of(12) {
            out.push(if random.next().is_multiple_of(2) { '.' } else { ',' });
        }
    }
}

/// Returns the first `count` passages, which are the same in every run.
pub(crate) fn passages(count: u64) -> impl Iterator<Item = Passage> {
    (0..count).map(|number| {
        let mut random = Random(number.wrapping_mul(0xd134_2543_de82_ef95));
        let mut contents = String::with_capacity(900);
        contents.push('"');
        text(&mut random, 2, &mut contents);
        contents.push_str("\"\n");
        text(&mut random, WORDS, &mut contents);
        Passage { id: number.to_string(), contents }
    })
}

/// Returns questions of six to ten common and rare words.
pub(crate) fn queries(count: u64) -> Vec<String> {
    let query = |number: u64| {
        let mut random = Random(!number);
        let mut query = String::new();
        let words = 6 + (random.next() % 5) as usize;
        text(&mut random, words, &mut query);
        query
    };
    (0..count).map(query).collect()
}
