use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Observation, Part, Seed, Snapshot, Step, Task};

use super::cards::Deal;
use super::game::{ACTIONS, Action, Game, REWARD, place_of};
use super::set::{EzPointsPictures, Shared};
use crate::saved::SavedEpisode;

/// Environment for the tasks of an [`super::EzPointsSet`].
///
/// The action `=` ends the episode (`terminated`). After six symbols, any valid action, even `=`,
/// ends the episode without a reward (`truncated`). At the step limit, the episode is also
/// truncated; actions without effect count as steps. If images are enabled, an image follows each
/// observation's text.
#[derive(Debug)]
pub struct EzPointsEnv {
    shared: Arc<Shared>,
    max_steps: usize,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    game: Game,
    taken: Vec<Cow<'static, str>>,
    over: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// Task id; contains the names of the cards.
    task: String,
    actions: Vec<Cow<'static, str>>,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "EZPoints";
    const FORMAT: &'static str = "turnwise.ezpoints.episode";
    const VERSION: u32 = 1;
}

impl EzPointsEnv {
    pub(super) fn new(shared: Arc<Shared>, max_steps: usize) -> Self {
        Self { shared, max_steps, episode: None }
    }

    /// Returns the current game.
    pub fn game(&self) -> Option<&Game> {
        self.episode.as_ref().map(|episode| &episode.game)
    }
}

pub(super) fn describe(game: &Game) -> String {
    let Deal([left, right]) = game.deal();
    let mut text = String::with_capacity(80);
    for (between, card) in [("Cards: ", left), (", ", right)] {
        for part in [between, card.rank_word(), " of ", card.suit().word()] {
            text.push_str(part);
        }
    }
    text.push_str("\nFormula:");
    for symbol in game.formula() {
        text.push(' ');
        text.push_str(symbol.text());
    }
    text
}

fn observe(game: &Game, pictures: Option<&EzPointsPictures>) -> Result<Observation, EnvError> {
    let admissible = ACTIONS.iter().map(|action| (*action).to_owned()).collect();
    let mut observation = Observation::new(describe(game)).with_admissible(admissible);
    if let Some(EzPointsPictures { cards, store }) = pictures {
        let handle = store.handle(observation.text().as_bytes(), || cards.png(game))?;
        observation.parts.push(Part::Image(handle));
    }
    Ok(observation)
}

impl Environment for EzPointsEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        let game = Game::new(self.shared.deal(&task.id)?);
        let observation = observe(&game, self.shared.pictures.as_ref())?;
        self.episode = Some(Episode { task: task.id.clone(), game, taken: Vec::new(), over: false });
        Ok(observation)
    }

    fn step(&mut self, action: &turnwise_core::Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::Other(format!(
                "{}: the episode is over after {} steps; call `reset` before the next `step`",
                episode.task,
                episode.taken.len()
            )));
        }
        let action = action.text();
        let read = Action::parse(&action);
        let outcome = episode.game.act(read);
        episode.taken.push(match place_of(&action) {
            Some(place) => ACTIONS[place].into(),
            None => Cow::Owned(action.into_owned()),
        });
        let out_of_steps = !outcome.terminated && episode.taken.len() >= self.max_steps;
        let truncated = outcome.truncated || out_of_steps;
        episode.over = outcome.terminated || truncated;
        let success = outcome.reward == REWARD;
        Ok(Step {
            observation: observe(&episode.game, self.shared.pictures.as_ref())?,
            reward: self.shared.reward.of(outcome.reward),
            progress: None,
            terminated: outcome.terminated,
            truncated,
            success,
            // A number on no card is still a valid action.
            understood: read != Action::Nothing,
            metrics: Vec::new(),
            rewards: Vec::new(),
        })
    }

    /// Saves the episode without its step limit. A finished episode cannot be saved.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        let saved = Saved { task: episode.task.clone(), actions: episode.taken.clone() };
        saved.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let mut game = Game::new(self.shared.deal(&saved.task)?);
        for action in &saved.actions {
            let outcome = game.act(Action::parse(action));
            if outcome.terminated || outcome.truncated {
                return Err(EnvError::State("the saved episode has ended".to_owned()));
            }
        }
        self.episode = Some(Episode { task: saved.task, game, taken: saved.actions, over: false });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::Purpose;

    use super::super::set::{EzPointsGenerator, EzPointsReward, EzPointsSet};
    use super::*;

    #[test]
    fn what_is_admissible_is_understood_and_nothing_else() {
        let set =
            EzPointsSet::new(&EzPointsGenerator::default(), None, EzPointsReward::Original, None).unwrap();
        let mut environment = set.ezpoints();
        let mut changed = 0;
        for task in set.split("test").unwrap().iter().take(12) {
            let seed = Seed::derive(0, Purpose::Environment, &[]);
            let admissible = environment.reset(task, seed).unwrap().admissible;
            assert_eq!(admissible, ACTIONS);
            for action in
                admissible.iter().map(String::as_str).chain([" 7 ", "11", "0", "-", "==", "two", ""])
            {
                let before = environment.reset(task, seed).unwrap();
                let step = environment.step(&turnwise_core::Action::from(action)).unwrap();
                let in_language = admissible.iter().any(|known| known == action.trim());
                assert_eq!(step.understood, in_language, "{}: {action:?}", task.id);
                let same = step.observation.text() == before.text() && !step.terminated;
                assert!(in_language || same, "{}: {action:?}", task.id);
                changed += usize::from(!same);
            }
        }
        assert!((12 * 4..=12 * 6).contains(&changed), "{changed}");
    }
}
