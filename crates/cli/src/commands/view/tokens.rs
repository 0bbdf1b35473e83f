//! The text of single tokens, and their colours.

use std::path::Path;

use turnwise_policy::{base, run_folder};
use turnwise_text::{DecodeStream, Tokenizer};

/// What the colour of a token shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Color {
    /// Darker for less likely tokens.
    #[default]
    LogProb,
    /// Darker for tokens that were sampled with higher entropy.
    Entropy,
}

impl Color {
    /// Colors with their value in a page's address and their label.
    pub(super) const ALL: [(Self, &'static str, &'static str); 2] =
        [(Self::LogProb, "", "log-prob"), (Self::Entropy, "entropy", "entropy")];

    /// Returns the colour of this name, or the default for an unknown name.
    pub(super) fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map_or(Self::default(), |(color, ..)| *color)
    }

    /// Returns the strength of a token's colour, from 0 to 1. 3 nats, a probability of 5 % or a choice of 20 tokens, are the darkest.
    pub(super) fn strength(self, logprob: f32, entropy: Option<f32>) -> f64 {
        let nats = match self {
            Self::LogProb => -logprob,
            Self::Entropy => entropy.unwrap_or(0.0),
        };
        (f64::from(nats) / 3.0).clamp(0.0, 1.0)
    }
}

/// Tokens as texts.
pub(super) struct TokenTexts(Tokenizer);

impl TokenTexts {
    /// Returns the tokenizer of a run's newest checkpoint, or of the model under its adapter. `None`
    /// if there is none; pages then show no token texts.
    pub(super) fn of_run(run: &Path) -> Option<Self> {
        let policy = run_folder::whole_checkpoints(run).ok()?.pop()?.join("policy");
        let folder =
            if policy.join("tokenizer.json").is_file() { policy } else { base::find(&policy, None).ok()? };
        Tokenizer::load_folder(&folder).ok().map(Self)
    }

    /// Returns the text that each token adds. A character split over several tokens belongs to the
    /// last.
    pub(super) fn texts(&self, ids: &[u32]) -> Vec<String> {
        let mut stream = DecodeStream::new();
        let mut texts: Vec<String> = ids.iter().map(|&id| stream.push(&self.0, id)).collect();
        let rest = stream.finish();
        if let Some(last) = texts.last_mut() {
            last.push_str(&rest);
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_of_their_number() {
        assert_eq!((Color::named("entropy"), Color::named("x")), (Color::Entropy, Color::LogProb));
        assert_eq!(Color::LogProb.strength(-1.5, Some(6.0)), 0.5);
        assert_eq!(
            (Color::Entropy.strength(-1.5, Some(6.0)), Color::Entropy.strength(-1.5, None)),
            (1.0, 0.0)
        );
    }
}
