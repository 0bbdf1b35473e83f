use std::fmt::Write as _;
use std::path::Path;

use turnwise_core::Turn;
use turnwise_policy::{base, run_folder};
use turnwise_text::{DecodeStream, Tokenizer};

use crate::plot::figure::figure;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Color {
    /// Darker for less likely tokens.
    #[default]
    LogProb,
    /// Darker for higher entropy.
    Entropy,
    /// Marks tokens with a clipped ratio: blue at the upper bound, orange at the lower.
    Clipping,
}

impl Color {
    pub(super) const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::LogProb, "", "log-prob"),
        (Self::Entropy, "entropy", "entropy"),
        (Self::Clipping, "clipping", "clipping"),
    ];

    pub(super) fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map_or(Self::default(), |(color, ..)| *color)
    }

    /// Returns a token's CSS class and the strength of its colour (0 to 1). The darkest colour
    /// means 3 nats: a probability of 5 %, or the entropy of 20 equally likely tokens.
    pub(super) fn of(self, token: &Token) -> (&'static str, f64) {
        let darker = |nats: f32| ("neg", (f64::from(nats) / 3.0).clamp(0.0, 1.0));
        match self {
            Self::LogProb => darker(-token.logprob),
            Self::Entropy => darker(token.entropy.unwrap_or(0.0)),
            Self::Clipping if token.clipped > 0 => ("pos", 1.0),
            Self::Clipping => ("neg", if token.clipped < 0 { 1.0 } else { 0.0 }),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) id: u32,
    pub(super) logprob: f32,
    pub(super) entropy: Option<f32>,
    pub(super) reward: Option<f64>,
    /// Number of updates that clipped the token's ratio, negative at the lower bound
    /// ([`Turn::clipped`]).
    pub(super) clipped: i32,
}

impl Token {
    pub(super) fn of(turn: &Turn, index: usize) -> Self {
        Self {
            id: turn.response_ids[index],
            logprob: turn.old_logprobs[index],
            entropy: turn.entropies.get(index).copied(),
            reward: turn.token_rewards.get(index).copied(),
            clipped: turn.clipped.get(index).copied().unwrap_or(0),
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut words = format!("token {}, log-prob {:.4}", self.id, self.logprob);
        if let Some(entropy) = self.entropy {
            let _ = write!(words, ", entropy {entropy:.4}");
        }
        if let Some(reward) = self.reward {
            let _ = write!(words, ", reward {}", figure(reward));
        }
        if self.clipped != 0 {
            let bound = if self.clipped > 0 { "upper" } else { "lower" };
            let updates = self.clipped.unsigned_abs();
            let plural = if updates == 1 { "" } else { "s" };
            let _ = write!(words, ", clipped at the {bound} bound in {updates} update{plural}");
        }
        words
    }
}

pub(super) struct TokenTexts(Tokenizer);

impl TokenTexts {
    /// Returns the tokenizer of a run's newest checkpoint or, if that has none, of its base model.
    pub(super) fn of_run(run: &Path) -> Option<Self> {
        let policy = run_folder::whole_checkpoints(run).ok()?.pop()?.join("policy");
        let folder =
            if policy.join("tokenizer.json").is_file() { policy } else { base::find(&policy, None).ok()? };
        Tokenizer::load_folder(&folder).ok().map(Self)
    }

    /// Returns the text that each token appends; a character that is split over several tokens
    /// belongs to the last of them.
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
        let turn = Turn {
            response_ids: vec![7, 8, 9],
            old_logprobs: vec![-1.5; 3],
            entropies: vec![6.0],
            clipped: vec![0, 1, -2],
            ..Turn::default()
        };
        let of = |color: Color| [0, 1, 2].map(|index| color.of(&Token::of(&turn, index)));
        assert_eq!(of(Color::LogProb), [("neg", 0.5); 3]);
        assert_eq!(of(Color::Entropy), [("neg", 1.0), ("neg", 0.0), ("neg", 0.0)]);
        assert_eq!(of(Color::Clipping), [("neg", 0.0), ("pos", 1.0), ("neg", 1.0)]);
        let unrecorded = Turn { clipped: Vec::new(), ..turn.clone() };
        assert_eq!(Color::Clipping.of(&Token::of(&unrecorded, 1)), ("neg", 0.0));
        let words = [0, 1, 2].map(|index| Token::of(&turn, index).describe());
        assert_eq!(words[0], "token 7, log-prob -1.5000, entropy 6.0000");
        assert_eq!(words[1], "token 8, log-prob -1.5000, clipped at the upper bound in 1 update");
        assert_eq!(words[2], "token 9, log-prob -1.5000, clipped at the lower bound in 2 updates");
    }
}
