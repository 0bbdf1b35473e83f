//! The objective part of every named preset.

use crate::{
    AdaptiveKl, Aggregation, Clip, KlConfig, NormalizationConfig, ObjectiveConfig, RatioKind, SelectiveConfig,
};

impl ObjectiveConfig {
    /// The objective part of a preset.
    pub fn preset(name: &str) -> Option<Self> {
        let plain = Self::default();
        let kl = |coef| KlConfig { coef, ..KlConfig::default() };
        let base = |name: &str| -> Option<Self> {
            Some(match name {
                "grpo" | "rloo" | "ppo" | "gigpo" | "hgpo" | "empg" => plain.clone(),
                "dapo" => Self { clip: Clip { low: 0.2, high: 0.28 }, ..plain.clone() },
                "gspo" => Self {
                    ratio: RatioKind::Sequence,
                    clip: Clip { low: 3e-4, high: 4e-4 },
                    aggregation: Aggregation::SeqMeanTokenMean,
                    ..plain.clone()
                },
                _ => return None,
            })
        };
        if let Some(config) = base(name) {
            return Some(config);
        }
        let sorl = |ratio| Self {
            ratio,
            aggregation: Aggregation::SeqMeanTokenMean,
            kl: kl(0.001),
            normalization: Some(NormalizationConfig::default()),
            ..plain.clone()
        };
        let selective = Some(SelectiveConfig::default());
        Some(match name {
            "stapo" => Self { kl: kl(0.01), selective, ..plain },
            "stapo-dynamic" => Self { clip: Clip { low: 0.2, high: 0.28 }, kl: kl(0.01), selective, ..plain },
            "so-ppo" => sorl(RatioKind::Turn),
            "so-grpo" => sorl(RatioKind::Token),
            "has-progressive" | "has-judge" | "has-turnrd" | "has-turnrd-film" => {
                // Where the adaptive controller starts.
                let adaptive = Some(AdaptiveKl::default());
                Self { kl: KlConfig { adaptive, ..kl(0.01) }, ..plain }
            }
            _ => {
                let (refinement, base_name) = name.split_once('-')?;
                let allowed: &[&str] = match refinement {
                    "aem" => &["grpo", "dapo", "gspo", "gigpo"],
                    "salt" => &["grpo", "rloo", "dapo", "gspo"],
                    _ => return None,
                };
                let config = allowed.contains(&base_name).then(|| base(base_name)).flatten()?;
                Self { kl: kl(0.01), ..config }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_what_their_papers_say() {
        let of = |name| ObjectiveConfig::preset(name).unwrap();
        assert_eq!(of("grpo"), ObjectiveConfig::default());
        assert_eq!(of("dapo").clip, Clip { low: 0.2, high: 0.28 });
        assert_eq!(of("aem-gspo").ratio, RatioKind::Sequence);
        assert_eq!(of("salt-rloo").kl.coef, 0.01);
        assert_eq!((of("so-ppo").ratio, of("so-ppo").kl.coef), (RatioKind::Turn, 0.001));
        for name in ["aem-rloo", "salt-gigpo", "nothing", "so-rloo"] {
            assert_eq!(ObjectiveConfig::preset(name), None, "{name}");
        }
        for name in ["ppo", "gspo", "stapo", "stapo-dynamic", "has-turnrd-film", "so-grpo", "salt-gspo"] {
            assert!(of(name).check().is_ok(), "{name}");
        }
    }
}
