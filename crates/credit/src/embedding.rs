//! A model-free text embedder that hashes character n-grams.
//!
//! Features are words (lower-cased letters and digits) and their character 3-, 4- and 5-grams, with
//! markers for start and end. A feature that occurs `n` times has weight `1 + ln n`; its hash
//! selects the vector component and the sign. Vectors are L2-normalized, or zero if the text has no
//! words. Vectors reflect the spelling of texts, not their meaning.
//!
//! Sources: signed feature hashing (Weinberger et al. 2009, "Feature Hashing for Large Scale
//! Multitask Learning"); character n-grams within words (Bojanowski et al. 2017, "Enriching Word
//! Vectors with Subword Information"), with counts instead of learned vectors.

use crate::Embedder;

const GRAMS: std::ops::RangeInclusive<usize> = 3..=5;

/// Embeds texts as hashed n-grams. A text has the same vector in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedNgrams {
    /// Dimension of vectors.
    pub dimensions: usize,
}

impl Default for HashedNgrams {
    fn default() -> Self {
        Self { dimensions: 1024 }
    }
}

/// FNV-1a, mixed so that every output bit depends on all characters.
fn hash(kind: u64, characters: &[char]) -> u64 {
    let mut state = 0xCBF2_9CE4_8422_2325_u64 ^ kind;
    for &character in characters {
        for byte in u32::from(character).to_le_bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
    state ^= state >> 33;
    state = state.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    state ^ (state >> 33)
}

impl Embedder for HashedNgrams {
    fn embed(&self, text: &str) -> Vec<f32> {
        let text = text.to_lowercase();
        let mut features = Vec::new();
        let mut marked = Vec::new();
        for word in text.split(|character: char| !character.is_alphanumeric()) {
            if word.is_empty() {
                continue;
            }
            marked.clear();
            marked.push('<');
            marked.extend(word.chars());
            marked.push('>');
            features.push(hash(0, &marked));
            for length in GRAMS {
                features.extend(marked.windows(length).map(|gram| hash(length as u64, gram)));
            }
        }
        features.sort_unstable();
        let mut vector = vec![0.0_f64; self.dimensions];
        if self.dimensions > 0 {
            for run in features.chunk_by(|a, b| a == b) {
                let weight = 1.0 + (run.len() as f64).ln();
                let sign = if run[0] >> 63 == 0 { 1.0 } else { -1.0 };
                vector[(run[0] % self.dimensions as u64) as usize] += sign * weight;
            }
        }
        let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        vector.into_iter().map(|value| (value * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f64 {
        let (a, b) = (HashedNgrams::default().embed(a), HashedNgrams::default().embed(b));
        a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    }

    #[test]
    fn alike_texts_are_near_and_others_far() {
        let results = "Results 1 to 10 of 50 for red running shoes: price $40, $42, $55";
        let counted = "Results 1 to 10 of 48 for red running shoes: price $40, $42, $55";
        let item = "You open the fridge. Inside you see an apple, a tomato and a lettuce.";
        assert!((cosine(results, results) - 1.0).abs() < 1e-6);
        assert!(cosine(results, counted) > 0.9, "{}", cosine(results, counted));
        assert!(cosine(results, item) < 0.3, "{}", cosine(results, item));
        assert!(cosine("the apple, the fridge", "The fridge! the APPLE") > 0.999);
        assert!(cosine("cabinets", "cabinet") > 0.5 && cosine("cabinets", "drawer") < 0.2);
    }

    #[test]
    fn vectors_are_unit_or_nothing_and_never_change() {
        let vector = HashedNgrams::default().embed("go to shelf 1");
        let length: f64 = vector.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-6);
        assert!(HashedNgrams::default().embed(" ... ").iter().all(|&value| value == 0.0));
        let word: Vec<(usize, f32)> = HashedNgrams { dimensions: 64 }
            .embed("go")
            .into_iter()
            .enumerate()
            .filter(|entry| entry.1 != 0.0)
            .collect();
        assert_eq!(word.len(), 4, "{word:?}");
        assert_eq!(hash(3, &['<', 'g', 'o']), 0x99FE_3537_C235_1C71_u64);
        assert_ne!(hash(3, &['<', 'g', 'o']), hash(4, &['<', 'g', 'o']));
    }
}
