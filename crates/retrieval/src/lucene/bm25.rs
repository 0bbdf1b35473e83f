//! Scores as in Lucene's `BM25Similarity`, in single precision for each term.
//!
//! A document's score is the sum over the query's terms of
//! `w - w / (1 + tf / (k1 (1 - b + b dl / avgdl)))` with `w = n idf`, `n` the term's count in the
//! query, and `idf = ln(1 + (N - df + 0.5) / (df + 0.5))`, without the textbook's factor `k1 + 1`.
//!
//! * `tf`: the term's count in the document;
//! * `dl`: the number of terms in the document, decoded from its one-byte norm (`decode_length`):
//!   exact up to 40, then with five significant bits;
//! * `avgdl`: the mean number of terms in a non-empty document;
//! * `N`, `df`: the number of non-empty documents, and the number of documents with this term.
//!
//! Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), as implemented
//! in Lucene. Anserini's defaults are k1 = 0.9, b = 0.4.

use serde::{Deserialize, Serialize};

/// BM25 constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bm25 {
    /// Term frequency saturation: smaller values give repeated terms less weight.
    pub k1: f32,
    /// Document length normalization, from 0 to 1.
    pub b: f32,
}

impl Default for Bm25 {
    fn default() -> Self {
        Self { k1: 0.9, b: 0.4 }
    }
}

/// Lengths below this are stored exactly (the "free values" in Lucene).
const FREE: u32 = 24;

/// Encodes a number of terms as a norm byte (`SmallFloat.intToByte4`).
pub fn encode_length(length: u32) -> u8 {
    if length < FREE {
        return length as u8;
    }
    // Four mantissa bits, the first implied, and an exponent.
    let rest = length - FREE;
    let bits = u32::BITS - rest.leading_zeros();
    let code = if bits < 4 { rest } else { ((rest >> (bits - 4)) & 7) | ((bits - 3) << 3) };
    (FREE + code) as u8
}

/// Returns the smallest number of terms with this norm byte (`SmallFloat.byte4ToInt`).
pub(crate) fn decode_length(norm: u8) -> u32 {
    let norm = u32::from(norm);
    if norm < FREE {
        return norm;
    }
    let code = norm - FREE;
    let (mantissa, exponent) = (code & 7, code >> 3);
    FREE + if exponent == 0 { mantissa } else { (mantissa | 8) << (exponent - 1) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) documents: u64,
    pub(super) tokens: u64,
}

impl Bm25 {
    /// Returns `1 / (k1 (1 - b + b dl / avgdl))` for each norm byte.
    pub(super) fn inverse_norms(self, collection: Collection) -> [f32; 256] {
        let average = (collection.tokens as f64 / collection.documents.max(1) as f64) as f32;
        std::array::from_fn(|norm| {
            let length = decode_length(norm as u8) as f32;
            1.0 / (self.k1 * ((1.0 - self.b) + self.b * length / average))
        })
    }
}

pub(super) fn weight(collection: Collection, document_frequency: u64, count: u32) -> f32 {
    let (documents, frequency) = (collection.documents as f64, document_frequency as f64);
    let idf = (1.0 + (documents - frequency + 0.5) / (frequency + 0.5)).ln() as f32;
    count as f32 * idf
}

#[inline]
pub(super) fn term_score(weight: f32, frequency: u32, inverse_norm: f32) -> f32 {
    weight - weight / (1.0 + frequency as f32 * inverse_norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_keep_five_bits() {
        for length in 0..=40 {
            assert_eq!(decode_length(encode_length(length)), length);
        }
        let kept = |length| decode_length(encode_length(length));
        assert_eq!([41, 42, 43, 55, 56, 59, 60].map(kept), [40, 42, 42, 54, 56, 56, 60]);
        assert_eq!(kept(1000), 984);
        assert_eq!(encode_length(i32::MAX as u32), 255);
        for norm in 0..=255 {
            assert_eq!(encode_length(decode_length(norm)), norm);
        }
    }

    #[test]
    fn a_score_by_hand() {
        // Ten documents of 10 terms; one contains the term, twice.
        let collection = Collection { documents: 10, tokens: 100 };
        let inverse = Bm25::default().inverse_norms(collection)[usize::from(encode_length(10))];
        let score = term_score(weight(collection, 1, 1), 2, inverse);
        // ln(1 + 9.5 / 1.5) * 2 / (2 + 0.9)
        assert!((f64::from(score) - 1.992_430_164_69 * 2.0 / 2.9).abs() < 1e-6, "{score}");
        assert_eq!(weight(collection, 1, 3), 3.0 * weight(collection, 1, 1));
    }
}
