use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Observation, Part, Seed, Snapshot, Step, Task};

use super::action::Action;
use super::level::parse;
use super::room::{Direction, Moved, Room, RoomText, STEP_REWARD};
use super::set::{Shared, SokobanPictures, SokobanReward};
use crate::pictures::png;
use crate::saved::SavedEpisode;

/// Environment for the levels of a [`super::SokobanSet`].
///
/// The episode ends when all boxes are on targets (`terminated`) or at the step limit
/// (`truncated`). As in verl-agent, `still` and invalid actions change nothing, but count and are
/// rewarded as steps. Progress is the fraction of boxes on targets. If images are enabled, an image
/// follows each observation's text.
#[derive(Debug)]
pub struct SokobanEnv {
    shared: Arc<Shared>,
    max_steps: usize,
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    task: String,
    room: Room,
    steps: usize,
    over: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    room: String,
    /// Number of boxes on targets when the last reward was computed.
    counted: usize,
    steps: usize,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "Sokoban";
    const FORMAT: &'static str = "turnwise.sokoban.episode";
    const VERSION: u32 = 1;
}

impl SokobanEnv {
    pub(super) fn new(shared: Arc<Shared>, max_steps: usize) -> Self {
        Self { shared, max_steps, episode: None }
    }

    /// Returns the current room.
    pub fn room(&self) -> Option<&Room> {
        self.episode.as_ref().map(|episode| &episode.room)
    }
}

fn observe(room: &Room, shared: &Shared) -> Result<Observation, EnvError> {
    let admissible = Direction::ALL.map(|direction| direction.word().to_owned()).into();
    let mut observation = Observation::new(room.render(shared.options.text)).with_admissible(admissible);
    if let Some(SokobanPictures { tiles, store }) = &shared.pictures {
        let state = room.render(RoomText::Ragen);
        let handle = store.handle(state.as_bytes(), || png::encode(&tiles.render(room)))?;
        observation.parts.push(Part::Image(handle));
    }
    Ok(observation)
}

fn progress(room: &Room) -> f64 {
    room.on_target() as f64 / room.boxes() as f64
}

impl Environment for SokobanEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        let room = self.shared.level(&task.id)?.clone();
        let observation = observe(&room, &self.shared)?;
        self.episode = Some(Episode { task: task.id.clone(), room, steps: 0, over: false });
        Ok(observation)
    }

    fn step(&mut self, action: &turnwise_core::Action) -> Result<Step, EnvError> {
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if episode.over {
            return Err(EnvError::Other(format!(
                "{}: the episode is over after {} steps; call `reset` before the next `step`",
                episode.task, episode.steps
            )));
        }
        let options = self.shared.options;
        let action = Action::parse(&action.text(), options.actions);
        episode.steps += 1;
        let moved = match action {
            Action::Move(direction) => episode.room.act(direction),
            Action::Still | Action::Other => Moved { reward: STEP_REWARD, moved: false, solved: false },
        };
        let truncated = !moved.solved && episode.steps >= self.max_steps;
        episode.over = moved.solved || truncated;
        let reward = match options.reward {
            SokobanReward::Original => moved.reward,
            SokobanReward::Success => f64::from(moved.solved),
        };
        Ok(Step {
            observation: observe(&episode.room, &self.shared)?,
            reward,
            progress: Some(progress(&episode.room)),
            terminated: moved.solved,
            truncated,
            success: moved.solved,
            understood: action != Action::Other,
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
        let saved = Saved {
            task: episode.task.clone(),
            room: episode.room.render(RoomText::Ragen),
            counted: episode.room.counted(),
            steps: episode.steps,
        };
        saved.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let level = self.shared.level(&saved.task)?;
        let room = parse(&saved.room).map_err(EnvError::State)?;
        let emptied = |room: &Room| room.cells().iter().map(|cell| cell.emptied()).collect::<Vec<_>>();
        if room.width() != level.width() || emptied(&room) != emptied(level) {
            return Err(EnvError::State(format!(
                "`{}` is not the level the state was saved from; make the same levels with the same seed",
                saved.task
            )));
        }
        let room = room.with_counted(saved.counted);
        self.episode = Some(Episode { task: saved.task, room, steps: saved.steps, over: false });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Action, Purpose};

    use super::super::generator::GeneratorConfig;
    use super::super::set::{SokobanOptions, SokobanSet};
    use super::*;

    fn started() -> (SokobanSet, SokobanEnv, Task) {
        let config = GeneratorConfig { train: 4, valid: 0, test: 0, ..GeneratorConfig::default() };
        let set = SokobanSet::new(&config, None, SokobanOptions::default(), None).unwrap().with_max_steps(3);
        let task = set.split("train").unwrap()[0].clone();
        let mut environment = set.sokoban();
        environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        (set, environment, task)
    }

    #[test]
    fn what_is_no_move_costs_and_counts() {
        let (_, mut environment, _) = started();
        for (turn, (action, understood)) in
            [("still", true), ("jump", false), ("", false)].into_iter().enumerate()
        {
            let step = environment.step(&Action::from(action)).unwrap();
            assert_eq!((step.reward, step.understood, step.terminated), (-0.1, understood, false));
            assert_eq!(step.truncated, turn == 2, "an episode of nothing but words ends too");
        }
        assert!(
            environment.step(&Action::from("up")).unwrap_err().to_string().contains("the episode is over")
        );
    }

    #[test]
    fn a_saved_episode_goes_on_as_it_would_have() {
        let (set, mut environment, _) = started();
        environment.step(&Action::from("left")).unwrap();
        let saved = environment.snapshot().unwrap().unwrap();
        let mut restored = set.sokoban();
        restored.restore(&saved).unwrap();
        for action in ["up", "right"] {
            let action = Action::from(action);
            assert_eq!(restored.step(&action).unwrap(), environment.step(&action).unwrap());
        }
        let error = restored.restore(&Snapshot(b"{}".to_vec())).unwrap_err().to_string();
        assert!(error.contains("no saved Sokoban episode"), "{error}");
    }
}
