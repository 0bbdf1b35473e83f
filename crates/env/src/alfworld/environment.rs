use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Snapshot, Step, Task};

use super::episode::Episode;
use super::set::Games;
use crate::saved::SavedEpisode;

/// Default step limit (the original's `max_nb_steps_per_episode`).
pub const DEFAULT_MAX_STEPS: usize = 50;

/// Environment for the games of an [`super::AlfworldSet`].
///
/// Reaching the goal is rewarded with 1 and ends the episode (`terminated`). Invalid commands also
/// count towards the step limit (`truncated`).
#[derive(Debug)]
pub struct AlfworldEnv {
    games: Arc<Games>,
    max_steps: usize,
    episode: Option<Episode>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    game: String,
    /// [`super::Game::fingerprint`] at the time of saving, to detect a game that has changed since.
    fingerprint: String,
    steps: u32,
    place: u16,
    holding: Option<u16>,
    state: String,
    observation: String,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "ALFWorld";
    const FORMAT: &'static str = "turnwise.alfworld.episode";
    const VERSION: u32 = 1;
}

impl AlfworldEnv {
    pub(super) fn new(games: Arc<Games>, max_steps: usize) -> Self {
        Self { games, max_steps, episode: None }
    }

    /// Returns the current episode.
    pub fn episode(&self) -> Option<&Episode> {
        self.episode.as_ref()
    }
}

impl Environment for AlfworldEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        let episode = self.episode.insert(Episode::new(Arc::clone(self.games.get(&task.id)?)));
        Ok(observe(episode))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if episode.won() && episode.steps() > 0 || episode.steps() >= self.max_steps {
            return Err(EnvError::Other(format!(
                "{}: the episode is over after {} steps; call `reset` before the next `step`",
                episode.game().id(),
                episode.steps()
            )));
        }
        let outcome = episode.step(&action.text());
        Ok(Step {
            observation: observe(episode),
            reward: if outcome.won { 1.0 } else { 0.0 },
            progress: Some(outcome.progress),
            terminated: outcome.won,
            truncated: !outcome.won && episode.steps() >= self.max_steps,
            success: outcome.won,
            understood: outcome.understood,
            metrics: Vec::new(),
            rewards: Vec::new(),
        })
    }

    /// Saves the episode, but not the step limit, which is a setting.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        let saved = Saved {
            game: episode.game().id().to_owned(),
            fingerprint: episode.game().fingerprint(),
            steps: episode.steps,
            place: episode.place,
            holding: episode.holding,
            state: hex(&episode.words),
            observation: episode.observation.clone(),
        };
        saved.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let refuse = |reason: String| EnvError::State(reason);
        let saved = Saved::read(snapshot)?;
        let game = self.games.get(&saved.game)?;
        if saved.fingerprint != game.fingerprint() {
            return Err(refuse(format!(
                "`{}` is not the game the state was saved from; load the same game files again",
                saved.game
            )));
        }
        let layout = game.world.layout;
        let words = hex_words(&saved.state).filter(|words| words.len() == layout.len());
        let fits = usize::from(saved.place) < layout.places
            && saved.holding.is_none_or(|object| usize::from(object) < layout.objects);
        let (Some(words), true) = (words, fits) else {
            return Err(refuse(format!("the state does not fit the game `{}`; it was altered", saved.game)));
        };
        // Bits beyond the last object must be zero.
        let object_words = layout.opened() / layout.words;
        let tail = |base: usize, bits: usize, words: &[u64]| {
            bits.is_multiple_of(64) || words[base] >> (bits % 64) == 0
        };
        let clean = (0..object_words)
            .all(|row| layout.objects > 0 && tail((row + 1) * layout.words - 1, layout.objects, &words))
            && tail(layout.len() - 1, layout.receptacles, &words);
        if !clean {
            return Err(refuse(format!("the state names things that `{}` does not have", saved.game)));
        }
        let (place, holding) = (saved.place, saved.holding);
        self.episode =
            Some(Episode::resume(Arc::clone(game), words, place, holding, saved.steps, saved.observation));
        Ok(())
    }
}

fn observe(episode: &Episode) -> Observation {
    Observation::new(episode.observation()).with_admissible(episode.admissible())
}

fn hex(words: &[u64]) -> String {
    let digit =
        |word: u64, place: u32| char::from_digit((word >> (4 * place) & 15) as u32, 16).unwrap_or('0');
    words.iter().flat_map(|&word| (0..16).rev().map(move |place| digit(word, place))).collect()
}

fn hex_words(text: &str) -> Option<Vec<u64>> {
    let (digits, rest) = text.as_bytes().as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    let word = |digits: &[u8; 16]| {
        digits
            .iter()
            .try_fold(0u64, |word, &digit| Some(word << 4 | u64::from(char::from(digit).to_digit(16)?)))
    };
    digits.iter().map(word).collect()
}
