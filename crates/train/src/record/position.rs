//! Position of a run: the number of finished steps in a phase.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// SFT or RL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// SFT before RL.
    Sft,
    /// Reinforcement learning.
    Rl,
}

/// Finished steps of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The phase.
    pub phase: Phase,
    /// Finished steps.
    pub step: u64,
}

impl Position {
    /// Returns the label that file names use.
    pub fn label(self) -> String {
        match self.phase {
            Phase::Sft => format!("sft-{:06}", self.step),
            Phase::Rl => format!("step-{:06}", self.step),
        }
    }

    /// Returns the finished RL steps.
    pub(crate) fn rl_step(self) -> u64 {
        if self.phase == Phase::Rl { self.step } else { 0 }
    }
}

impl FromStr for Position {
    type Err = String;

    /// Parses a position's label, with or without leading zeros: `step-12`, `sft-000300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not a position of a run; write step-12 or sft-300");
        let (phase, step) = text.split_once('-').ok_or_else(refuse)?;
        let phase = match phase {
            "sft" => Phase::Sft,
            "step" => Phase::Rl,
            _ => return Err(refuse()),
        };
        if step.is_empty() || !step.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refuse());
        }
        Ok(Self { phase, step: step.parse().map_err(|_| refuse())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_sort_in_running_order() {
        let sft = Position { phase: Phase::Sft, step: 900 };
        let rl = Position { phase: Phase::Rl, step: 0 };
        assert!(sft < rl);
        assert_eq!(sft.label(), "sft-000900");
        assert_eq!(rl.label(), "step-000000");
        assert_eq!("step-12".parse::<Position>().unwrap(), Position { phase: Phase::Rl, step: 12 });
        assert_eq!(sft.label().parse::<Position>().unwrap(), sft);
        for wrong in ["step", "step-", "step-1x", "rl-3", "abandoned-1-step-3"] {
            assert!(wrong.parse::<Position>().unwrap_err().contains("write step-12"), "{wrong}");
        }
    }
}
