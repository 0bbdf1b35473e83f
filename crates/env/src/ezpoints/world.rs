use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Task, TaskSet};
use turnwise_settings::Problem;

use super::cards::Deal;
use super::expert::{Adviser, demonstrate};
use super::picture::Cards;
use super::replay::{parse_deal, replay};
use super::set::{DEFAULT_MAX_STEPS, EzPointsGenerator, EzPointsPictures, EzPointsReward, EzPointsSet};
use crate::demonstration::{DemonstrationRequest, Demonstrations};
use crate::pictures::PictureStore;
use crate::replay::{ReplayReport, numbered_lines};
use crate::world::{Advisor, EvalDefaults, OpenOptions, ReplayRequest, World, WorldKind};

/// The environment kind `ezpoints`.
#[derive(Clone, Copy, Debug, Default)]
pub struct EzPointsKind;

/// Settings of EZPoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EzPointsSettings {
    /// File with the card pairs of `test`, such as recorded episodes: JSON Lines with the key
    /// `cards`, optionally zstd-compressed. The file's pairs are excluded from training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Reward of a step.
    pub reward: EzPointsReward,
    /// Folder for observation images (PNG files named by SHA-256). Default: no images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pictures: Option<PathBuf>,
    /// Folder of card images (`H2.png` to `CK.png`, 135 x 189 pixels). Default: built-in cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cards: Option<PathBuf>,
    /// Dealing of cards.
    pub generator: EzPointsGenerator,
    /// Demonstration expert.
    pub expert: EzPointsExpert,
}

/// Demonstration expert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EzPointsExpert {
    /// Probability that the expert evaluates the formula before it adds the second number. SFT
    /// imitates these failures.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub early_evaluation_prob: f64,
}

/// EZPoints environment with its tasks.
#[derive(Clone, Debug)]
pub struct EzPointsWorld {
    set: EzPointsSet,
    expert: EzPointsExpert,
}

impl EzPointsWorld {
    /// Returns the task set.
    pub fn set(&self) -> &EzPointsSet {
        &self.set
    }
}

const TEMPLATES: [(&str, &str); 4] = [
    ("ezpoints-few-shot", include_str!("../../templates/ezpoints-few-shot.toml")),
    ("ezpoints-verl-agent", include_str!("../../templates/ezpoints-verl-agent.toml")),
    ("ezpoints-compact", include_str!("../../templates/ezpoints-compact.toml")),
    ("ezpoints", include_str!("../../templates/ezpoints.toml")),
];

fn read_deals(path: &Path) -> Result<Vec<Deal>, EnvError> {
    let name = path.display().to_string();
    let file = turnwise_files::open(path).map_err(|source| EnvError::Io { path: name.clone(), source })?;
    let mut deals = Vec::new();
    for line in numbered_lines(&name, file) {
        let line = line?;
        let deal = parse_deal(&line.text).map_err(|reason| line.error(reason))?;
        if deal.operator().is_none() {
            let [left, right] = deal.numbers();
            let reason = format!("{left} and {right} ({deal}) come to 12 neither as a sum nor as a product");
            return Err(line.error(reason));
        }
        deals.push(deal);
    }
    if deals.is_empty() {
        return Err(EnvError::File { path: name, reason: "there are no episodes in this file".to_owned() });
    }
    Ok(deals)
}

impl WorldKind for EzPointsKind {
    type Settings = EzPointsSettings;

    fn name(&self) -> &'static str {
        "ezpoints"
    }

    fn summary(&self) -> &'static str {
        "building a formula of two cards that comes to 12"
    }

    fn has_progress(&self) -> bool {
        false
    }

    fn rules(&self, settings: &EzPointsSettings) -> Vec<Problem> {
        if settings.cards.is_none() || settings.pictures.is_some() {
            return Vec::new();
        }
        let reason =
            "says what pictures are made of, and none are drawn; name a folder for them with pictures";
        vec![Problem::new("cards", reason)]
    }

    fn open(
        &self,
        settings: &EzPointsSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        let panel = settings.data.as_deref().map(read_deals).transpose()?;
        let pictures = match &settings.pictures {
            None => None,
            Some(folder) => Some(EzPointsPictures {
                cards: settings.cards.as_deref().map_or_else(|| Ok(Cards::own()), Cards::read)?,
                store: PictureStore::new(folder)?,
            }),
        };
        let set = EzPointsSet::new(&settings.generator, panel, settings.reward, pictures)?;
        let set = set.with_max_steps(options.max_turns);
        Ok(Box::new(EzPointsWorld { set, expert: settings.expert.clone() }))
    }

    fn templates(&self) -> &'static [(&'static str, &'static str)] {
        &TEMPLATES
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults {
            max_turns: DEFAULT_MAX_STEPS,
            splits: &["test"],
            template: "ezpoints-verl-agent",
            react_template: None,
        }
    }

    fn play_settings(&self, seed: u64, _: bool) -> EzPointsSettings {
        let generator = EzPointsGenerator { seed, ..EzPointsGenerator::default() };
        EzPointsSettings { generator, ..EzPointsSettings::default() }
    }

    fn play_help(&self) -> &'static str {
        "  1 to 10, +, * are added to the formula; = evaluates it and ends the episode"
    }

    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        if request.dump.is_some() {
            return Err(EnvError::Other("recordings of ezpoints cannot be written, only replayed".into()));
        }
        replay(request.name, request.recording, request.data)
    }
}

impl World for EzPointsWorld {
    fn task_set(&self) -> &dyn TaskSet {
        &self.set
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        demonstrate(&self.set, request, self.expert.early_evaluation_prob).map(Some)
    }

    fn split_numbers(&self) -> bool {
        true
    }

    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        Ok(Some(Box::new(Adviser::new(self.set.deal(&task.id)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deals_that_cannot_come_to_twelve_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deals.jsonl");
        let line = |cards: [&str; 2], numbers: [u8; 2]| {
            let [left, right] = cards;
            format!(
                "{{\"seed\": 1, \"cards\": [\"{left}\", \"{right}\"], \"numbers\": {numbers:?}, \"steps\": []}}\n"
            )
        };
        let good = line(["H4", "C8"], [4, 8]) + &line(["D2", "C6"], [2, 6]);
        std::fs::write(&path, &good).unwrap();
        assert_eq!(read_deals(&path).unwrap().len(), 2);
        let bare = folder.path().join("bare.jsonl");
        std::fs::write(&bare, "{\"cards\": [\"H4\", \"C8\"]}\n").unwrap();
        assert_eq!(read_deals(&bare).unwrap(), read_deals(&path).unwrap()[..1]);
        for (cards, numbers, said) in
            [(["H6", "CK"], [6, 10], "6 and 10"), (["HA", "CQ"], [1, 10], "1 and 10")]
        {
            std::fs::write(&path, format!("{good}{}", line(cards, numbers))).unwrap();
            let error = read_deals(&path).unwrap_err().to_string();
            assert!(error.contains("deals.jsonl, line 3") && error.contains(said), "{error}");
        }
    }
}
