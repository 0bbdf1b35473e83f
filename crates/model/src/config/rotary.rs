//! Rotary frequencies, and their scaling for long contexts.

use std::f64::consts::PI;

use crate::{ModelConfig, ModelError};

/// Scaling of positions (`rope_scaling` in `config.json`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    #[default]
    None,
    /// Divides all frequencies.
    Linear {
        /// Divisor, at least 1.
        factor: f64,
    },
    /// Llama 3.1: divides low frequencies, keeps high ones, and interpolates in between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Frequencies with fewer rotations than this over the original context count as low.
        low_freq_factor: f64,
        /// Frequencies with more rotations than this over the original context count as high.
        high_freq_factor: f64,
        /// Context length in pretraining.
        original_max_position_embeddings: usize,
    },
    /// YaRN (Peng et al. 2024): scales by wavelength and sharpens attention.
    Yarn {
        /// Divisor of low frequencies.
        factor: f64,
        /// Factor by which cosines and sines are multiplied.
        attention_factor: f64,
        /// Frequencies with more rotations than this in the original context are unchanged.
        beta_fast: f64,
        /// Frequencies with fewer rotations than this in the original context are divided by `factor`.
        beta_slow: f64,
        /// Context length in pretraining.
        original_max_position_embeddings: usize,
        /// True if the ramp between unchanged and divided frequencies is widened to whole pair
        /// indices.
        truncate: bool,
    },
}

/// Rotary embedding. Pair `(i, i + head_dim / 2)` of a head at position `p` is rotated by
/// `p * frequencies[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Radians per position, `[head_dim / 2]`.
    pub frequencies: Vec<f64>,
    /// Factor by which cosines and sines are multiplied; 1 except for YaRN.
    pub attention_factor: f64,
}

impl ModelConfig {
    /// Returns the rotary embedding for a config.
    ///
    /// Without scaling, frequencies are `theta^(-2 i / head_dim)` (Su et al. (2021), "RoFormer") in
    /// double precision. `transformers` uses single precision, so its angles differ by up to about
    /// `position * 6e-8` radians.
    pub fn rotary(&self) -> Rotary {
        let half = self.head_dim / 2;
        let plain = |i: usize| self.rope_theta.powf(-(i as f64) / half as f64);
        let mut rotary = Rotary { frequencies: (0..half).map(plain).collect(), attention_factor: 1.0 };
        match self.rope_scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                rotary.frequencies.iter_mut().for_each(|frequency| *frequency /= factor);
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                for frequency in &mut rotary.frequencies {
                    let turns = original as f64 * *frequency / (2.0 * PI);
                    // 0 for low frequencies, 1 for high ones.
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    *frequency = (1.0 - share) * *frequency / factor + share * *frequency;
                }
            }
            RopeScaling::Yarn {
                factor,
                attention_factor,
                beta_fast,
                beta_slow,
                original_max_position_embeddings: original,
                truncate,
            } => {
                rotary.attention_factor = attention_factor;
                // The pair with this many turns in the original context.
                let pair = |turns: f64| {
                    half as f64 * (original as f64 / (turns * 2.0 * PI)).ln() / self.rope_theta.ln()
                };
                let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(self.head_dim as f64 - 1.0));
                if low == high {
                    high += 0.001;
                }
                for (i, frequency) in rotary.frequencies.iter_mut().enumerate() {
                    let share = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    *frequency = share * *frequency / factor + (1.0 - share) * *frequency;
                }
            }
        }
        rotary
    }
}

impl RopeScaling {
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let fail = |key: &str, value: f64, least: &str| {
            Err(ModelError::Config {
                key: format!("rope_scaling.{key}"),
                reason: format!("{value} is not a number {least}"),
            })
        };
        let factor = match *self {
            Self::None => return Ok(()),
            Self::Linear { factor } | Self::Llama3 { factor, .. } | Self::Yarn { factor, .. } => factor,
        };
        if !(factor >= 1.0 && factor.is_finite()) {
            return fail("factor", factor, "from 1 up");
        }
        match *self {
            Self::Llama3 { low_freq_factor: low, high_freq_factor: high, .. }
                if !(low > 0.0 && high > low && high.is_finite()) =>
            {
                fail("high_freq_factor", high, "above low_freq_factor, which is above 0")
            }
            Self::Yarn { attention_factor, .. }
                if !(attention_factor > 0.0 && attention_factor.is_finite()) =>
            {
                fail("attention_factor", attention_factor, "above 0")
            }
            Self::Yarn { beta_fast, beta_slow, .. }
                if !(beta_slow > 0.0 && beta_fast >= beta_slow && beta_fast.is_finite()) =>
            {
                fail("beta_fast", beta_fast, "at least beta_slow, which is above 0")
            }
            Self::Llama3 { original_max_position_embeddings: 0, .. }
            | Self::Yarn { original_max_position_embeddings: 0, .. } => {
                fail("original_max_position_embeddings", 0.0, "from 1 up")
            }
            _ => Ok(()),
        }
    }
}
