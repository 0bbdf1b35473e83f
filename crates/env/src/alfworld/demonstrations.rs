//! Demonstrations for SFT warm starts.
//!
//! Walkthroughs go straight to the wanted objects; only the expert also shows how to search for
//! them. Inserted invalid commands show how to continue after `Nothing happens.` and are excluded
//! from the loss.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Observation, Rng};

use super::expert::{Expert, SearchOrder, names};
use super::{AlfworldSet, Episode, Game, Prior};
use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_all,
};

/// Source of the demonstrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The expert, which estimates where objects are from their frequencies in the training games.
    #[default]
    Expert,
    /// The walkthrough stored in each game; games without a walkthrough are skipped.
    Walkthrough,
}

/// Plays episodes and keeps the solved ones.
///
/// # Errors
/// Returns [`EnvError::UnknownSplit`] or an error of `play_all`.
pub fn demonstrate(
    set: &AlfworldSet,
    request: &DemonstrationRequest<'_>,
    source: Source,
    order: SearchOrder,
) -> Result<Demonstrations, EnvError> {
    let games = set.split(request.split)?;
    let prior = if source == Source::Expert && order == SearchOrder::Likely {
        Prior::from_games(set.split("train").unwrap_or(games))
    } else {
        Prior::default()
    };
    play_all(games, request, |game, seed| {
        let expert = Expert::new(&prior).with_order(order);
        Ok(play(game, expert, source, request, &mut seed.rng()))
    })
}

fn play(
    game: &Arc<Game>,
    mut expert: Expert<'_>,
    source: Source,
    request: &DemonstrationRequest<'_>,
    rng: &mut Rng,
) -> Option<Demonstration> {
    let mut episode = Episode::new(Arc::clone(game));
    let mut plan = match source {
        Source::Expert => {
            expert.reset(episode.observation(), game.sentence());
            None
        }
        Source::Walkthrough => Some(game.walkthrough()?),
    };
    let mut seen = Seen::new(game);
    let mut turns = Vec::new();
    while !episode.won() {
        if episode.steps() >= request.max_turns {
            return None;
        }
        let observation = Observation::new(episode.observation()).with_admissible(episode.admissible());
        seen.read(&observation.text());
        let injected = (rng.chance(request.invalid_action_prob) && episode.steps() + 1 < request.max_turns)
            .then(|| seen.mistake(&observation.admissible, rng))
            .flatten();
        let imitate = injected.is_none();
        let action = match (injected, &mut plan) {
            (Some(mistake), _) => {
                // The expert must see the observation that the inserted command answers.
                expert.observe(&observation.text());
                mistake
            }
            (None, None) => expert.act(&observation),
            (None, Some(plan)) => plan.next()?.to_owned(),
        };
        let outcome = episode.step(&action);
        let reward = if outcome.won { 1.0 } else { 0.0 };
        turns.push(DemonstrationTurn::new(observation, request.keep_admissible, action, imitate, reward));
    }
    Some(Demonstration {
        task: game.task(),
        tools: Vec::new(),
        turns,
        final_observation: episode.observation().to_owned(),
    })
}

struct Seen {
    receptacles: Vec<String>,
    objects: Vec<String>,
}

impl Seen {
    fn new(game: &Game) -> Self {
        let receptacles = game.receptacles().map(|index| game.receptacle_name(index).to_owned()).collect();
        Self { receptacles, objects: Vec::new() }
    }

    fn read(&mut self, text: &str) {
        let Some((_, list)) = text.split_once(" you see ") else { return };
        for name in names(list.trim_end_matches('.')) {
            if !self.objects.iter().any(|known| known == name)
                && !self.receptacles.iter().any(|known| known == name)
                && !name.contains('\n')
            {
                self.objects.push(name.to_owned());
            }
        }
    }

    /// Returns a plausible but inadmissible command.
    fn mistake(&self, admissible: &[String], rng: &mut Rng) -> Option<String> {
        for _ in 0..8 {
            let place = rng.choose(&self.receptacles)?;
            let command = match (rng.choose(&self.objects), rng.below(8)) {
                (None, 0..4) | (_, 0) => format!("open {place}"),
                (None, _) | (_, 1) => format!("go to {place}"),
                (Some(object), 2 | 3) => format!("take {object} from {place}"),
                (Some(object), 4 | 5) => format!("move {object} to {place}"),
                (Some(object), 6) => format!("use {object}"),
                (Some(object), _) => {
                    let verb = ["clean", "heat", "cool"][rng.below(3)];
                    format!("{verb} {object} with {place}")
                }
            };
            if !admissible.contains(&command) {
                return Some(command);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alfworld::generator::{GeneratorConfig, generate};

    fn set() -> AlfworldSet {
        generate(&GeneratorConfig { train: 120, valid_seen: 0, valid_unseen: 0, ..Default::default() })
            .unwrap()
    }

    fn expert(set: &AlfworldSet, request: &DemonstrationRequest<'_>) -> Result<Demonstrations, EnvError> {
        demonstrate(set, request, Source::Expert, SearchOrder::Likely)
    }

    fn replays(set: &AlfworldSet, demonstration: &Demonstration) -> bool {
        let mut episode = Episode::new(Arc::clone(set.game(&demonstration.task.id).unwrap()));
        let last = demonstration.turns.len() - 1;
        demonstration.turns.iter().enumerate().all(|(index, turn)| {
            let same = episode.observation() == turn.observation;
            let outcome = episode.step(&turn.action);
            let won = index == last;
            same && outcome.understood == turn.imitate && outcome.won == won && turn.reward == f64::from(won)
        }) && episode.observation() == demonstration.final_observation
    }

    #[test]
    fn expert_episodes_replay_and_mark_their_mistakes() {
        let set = set();
        let request =
            DemonstrationRequest { count: 300, invalid_action_prob: 0.2, seed: 3, ..Default::default() };
        let made = expert(&set, &request).unwrap();
        assert_eq!(made.episodes.len() + made.dropped, 300);
        assert!(made.dropped < 6, "{}", made.dropped);
        assert!(made.episodes.iter().all(|episode| replays(&set, episode)));
        let turns: Vec<_> = made.episodes.iter().flat_map(|episode| &episode.turns).collect();
        let share = turns.iter().filter(|turn| !turn.imitate).count() as f64 / turns.len() as f64;
        assert!((0.16..0.24).contains(&share), "{share}");
        let mut wrong = made.episodes[0].clone();
        wrong.turns[0].action = "look".into();
        assert!(!replays(&set, &wrong));
    }

    #[test]
    fn the_arguments_decide_everything() {
        let set = set();
        let made = |seed| {
            let request =
                DemonstrationRequest { count: 200, invalid_action_prob: 0.06, seed, ..Default::default() };
            expert(&set, &request).unwrap()
        };
        let single = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(made(1), single.install(|| made(1)));
        assert_ne!(made(1), made(2));
    }

    #[test]
    fn walkthroughs_are_shorter_than_searches() {
        let set = set();
        let length = |source, order| {
            let request = DemonstrationRequest { count: 120, ..Default::default() };
            let made = demonstrate(&set, &request, source, order).unwrap();
            assert!(made.episodes.iter().all(|episode| replays(&set, episode)));
            let turns = made.episodes.iter().map(|episode| episode.turns.len()).sum::<usize>();
            turns as f64 / made.episodes.len() as f64
        };
        let shortest = length(Source::Walkthrough, SearchOrder::Likely);
        let likely = length(Source::Expert, SearchOrder::Likely);
        let listed = length(Source::Expert, SearchOrder::Listed);
        assert!(shortest < likely && likely < listed, "{shortest} {likely} {listed}");
    }

    #[test]
    fn short_limits_drop_and_admissible_lists_are_kept_on_request() {
        let set = set();
        let request = DemonstrationRequest {
            count: 120,
            invalid_action_prob: 0.06,
            max_turns: 6,
            keep_admissible: true,
            ..Default::default()
        };
        let made = expert(&set, &request).unwrap();
        assert!(made.dropped > 20 && !made.episodes.is_empty(), "{}", made.dropped);
        for turn in made.episodes.iter().flat_map(|episode| &episode.turns) {
            assert_eq!(turn.admissible.contains(&turn.action), turn.imitate);
        }
        let wrong = DemonstrationRequest { invalid_action_prob: 1.0, ..request };
        assert!(expert(&set, &wrong).unwrap_err().to_string().contains("invalid_action_prob"));
        assert!(expert(&set, &DemonstrationRequest { split: "test", ..request }).is_err());
    }
}
