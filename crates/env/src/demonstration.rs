//! Expert episodes for SFT.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use turnwise_core::{
    Action, EnvError, Environment, ImageHandle, Observation, Purpose, Rng, Seed, Step, Task, TaskSet, Tool,
};

/// Options for playing demonstrations.
#[derive(Clone, Copy)]
pub struct DemonstrationRequest<'a> {
    /// Split whose tasks are played in order.
    pub split: &'a str,
    /// Number of episodes to play; failed ones are not replaced.
    pub count: usize,
    /// Probability of playing an invalid or useless action before an action of the expert. SFT does
    /// not imitate the inserted actions. Environments in other processes ([`crate::process`]) get
    /// no inserted actions.
    pub invalid_action_prob: f64,
    /// Turn limit per episode, including inserted actions.
    pub max_turns: usize,
    /// Whether to store admissible actions, which take up most of the memory.
    pub keep_admissible: bool,
    /// Seed of all random draws.
    pub seed: u64,
    /// Called after each episode, on the thread that played it. `Break` stops early.
    pub played: &'a (dyn Fn() -> ControlFlow<()> + Sync),
}

impl Default for DemonstrationRequest<'_> {
    fn default() -> Self {
        Self {
            split: "train",
            count: 0,
            invalid_action_prob: 0.0,
            max_turns: 50,
            keep_admissible: false,
            seed: 0,
            played: &|| ControlFlow::Continue(()),
        }
    }
}

impl DemonstrationRequest<'_> {
    fn seed_of(&self, index: usize) -> Seed {
        Seed::derive(self.seed, Purpose::Demonstration, &[index as u64])
    }

    fn check(&self) -> Result<(), EnvError> {
        check_probability("invalid_action_prob", self.invalid_action_prob)
    }
}

pub(crate) fn check_probability(name: &str, probability: f64) -> Result<(), EnvError> {
    if (0.0..1.0).contains(&probability) {
        return Ok(());
    }
    Err(EnvError::Other(format!(
        "{name}: {probability} is no probability; it must be at least 0 and below 1"
    )))
}

/// An observation and the action taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemonstrationTurn {
    /// Observation before the action.
    pub observation: String,
    /// Image in the observation.
    pub image: Option<ImageHandle>,
    /// Admissible actions; empty unless [`DemonstrationRequest::keep_admissible`] is set.
    pub admissible: Vec<String>,
    /// The expert's action, or an inserted invalid or useless action.
    pub action: String,
    /// Whether SFT imitates the action.
    pub imitate: bool,
    /// Reward for the action.
    pub reward: f64,
}

impl DemonstrationTurn {
    /// Creates a turn.
    pub fn new(
        seen: Observation,
        keep_admissible: bool,
        action: impl Into<String>,
        imitate: bool,
        reward: f64,
    ) -> Self {
        let mut seen = seen;
        let admissible = if keep_admissible { std::mem::take(&mut seen.admissible) } else { Vec::new() };
        let image = seen.image().cloned();
        Self { observation: seen.into_text(), image, admissible, action: action.into(), imitate, reward }
    }
}

/// An expert's episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Demonstration {
    /// The task played.
    pub task: Task,
    /// Functions that the actions may call ([`turnwise_core::Environment::tools`]).
    pub tools: Vec<Tool>,
    /// Turns in order.
    pub turns: Vec<DemonstrationTurn>,
    /// Observation after the last action.
    pub final_observation: String,
}

const SUMMARY_ACTIONS: usize = 5;

/// Returns one line of text: the number of actions before `turn`, and the last five of these
/// actions.
pub(crate) fn latest_actions(episode: &Demonstration, turn: usize) -> String {
    let before = &episode.turns[..turn.min(episode.turns.len())];
    let latest = before[before.len().saturating_sub(SUMMARY_ACTIONS)..].iter();
    let actions: Vec<String> =
        latest.map(|turn| turn.action.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    format!("{} actions so far, the latest: {}.", before.len(), actions.join("; "))
}

/// Result of a [`DemonstrationRequest`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demonstrations {
    /// Successful episodes in task order.
    pub episodes: Vec<Demonstration>,
    /// Number of dropped episodes, including failed ones.
    pub dropped: usize,
    /// Number of dropped episodes that ended with an environment error.
    pub failed: usize,
    /// First environment error.
    pub failure: Option<String>,
}

/// Plays the requested episodes on all threads. Episode `i` plays the task with index `i` modulo
/// the number of tasks, and has its own seed, so the result does not depend on the scheduling.
/// `play` returns `None` to drop an episode.
///
/// # Errors
/// Fails if `invalid_action_prob` is invalid or `play` fails.
pub(crate) fn play_all<T: Sync>(
    tasks: &[T],
    request: &DemonstrationRequest<'_>,
    play: impl Fn(&T, Seed) -> Result<Option<Demonstration>, EnvError> + Sync,
) -> Result<Demonstrations, EnvError> {
    request.check()?;
    if tasks.is_empty() {
        return Ok(Demonstrations::default());
    }
    let stopped = AtomicBool::new(false);
    let played: Vec<Option<Demonstration>> = (0..request.count)
        .into_par_iter()
        .map(|index| {
            if stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let episode = play(&tasks[index % tasks.len()], request.seed_of(index))?;
            if (request.played)().is_break() {
                stopped.store(true, Ordering::Relaxed);
            }
            Ok(episode)
        })
        .collect::<Result<_, EnvError>>()?;
    let episodes: Vec<Demonstration> = played.into_iter().flatten().collect();
    let dropped = request.count - episodes.len();
    Ok(Demonstrations { episodes, dropped, ..Demonstrations::default() })
}

/// Plays episodes one after another, for environments in other processes. Failed episodes are
/// dropped and counted.
///
/// # Errors
/// Fails if `invalid_action_prob` is invalid, or if `play` fails for every episode.
pub fn play_in_turn<T>(
    tasks: &[T],
    request: &DemonstrationRequest<'_>,
    mut play: impl FnMut(&T, Seed) -> Result<Option<Demonstration>, EnvError>,
) -> Result<Demonstrations, EnvError> {
    request.check()?;
    let (mut found, mut failed, mut answered) = (Demonstrations::default(), None, false);
    for (index, task) in tasks.iter().cycle().take(request.count).enumerate() {
        let episode = play(task, request.seed_of(index));
        answered |= episode.is_ok();
        match episode {
            Ok(Some(episode)) => found.episodes.push(episode),
            Ok(None) => found.dropped += 1,
            Err(error) => {
                found.dropped += 1;
                found.failed += 1;
                found.failure.get_or_insert_with(|| error.to_string());
                failed = Some(error);
            }
        }
        if (request.played)().is_break() {
            break;
        }
    }
    match failed {
        Some(error) if !answered => Err(error),
        _ => Ok(found),
    }
}

/// Plays an episode. `act` returns the next action and whether SFT imitates it, or `None` to give
/// up. The result is `None` if `act` gives up, if the episode does not end within `max_turns`, or
/// if `worth` rejects its last step.
///
/// # Errors
/// Returns the environment's error.
pub(crate) fn play_episode<E: Environment + ?Sized>(
    environment: &mut E,
    task: &Task,
    seed: Seed,
    request: &DemonstrationRequest<'_>,
    mut act: impl FnMut(&E, &Observation) -> Option<(String, bool)>,
    worth: impl Fn(&Step) -> bool,
) -> Result<Option<Demonstration>, EnvError> {
    let mut observation = environment.reset(task, seed)?;
    let tools = environment.tools().to_vec();
    let mut turns = Vec::new();
    while turns.len() < request.max_turns {
        let Some((action, imitate)) = act(environment, &observation) else { return Ok(None) };
        let step = environment.step(&Action::from(&action))?;
        let (ended, worth) = (step.terminated || step.truncated, worth(&step));
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        if ended {
            let final_observation = observation.into_text();
            return Ok(worth.then(|| Demonstration { task: task.clone(), tools, turns, final_observation }));
        }
    }
    Ok(None)
}

/// Plays episodes with random admissible actions, so that a tokenizer can be trained on their texts
/// without an expert. Failed episodes are dropped and counted.
///
/// # Errors
/// Fails on an unknown split or if all episodes fail.
pub fn explore(set: &dyn TaskSet, request: &DemonstrationRequest<'_>) -> Result<Demonstrations, EnvError> {
    let tasks = set.tasks(request.split)?;
    play_in_turn(&tasks, request, |task, seed| wander(set, task.clone(), request, seed).map(Some))
}

fn wander(
    set: &dyn TaskSet,
    task: Task,
    request: &DemonstrationRequest<'_>,
    seed: Seed,
) -> Result<Demonstration, EnvError> {
    let mut rng: Rng = seed.rng();
    let mut environment = set.environment()?;
    let mut observation = environment.reset(&task, seed)?;
    let mut turns = Vec::new();
    while turns.len() < request.max_turns {
        let Some(action) = rng.choose(&observation.admissible).cloned() else { break };
        let step = environment.step(&Action::from(&action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, false, step.reward));
        if step.terminated || step.truncated {
            break;
        }
    }
    let tools = environment.tools().to_vec();
    environment.close();
    Ok(Demonstration { task, tools, turns, final_observation: observation.into_text() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(task: &str) -> Demonstration {
        let task = Task { id: task.into(), ..Task::default() };
        Demonstration { task, tools: Vec::new(), turns: Vec::new(), final_observation: String::new() }
    }

    fn ids(found: &Demonstrations) -> Vec<&str> {
        found.episodes.iter().map(|episode| episode.task.id.as_str()).collect()
    }

    #[test]
    fn a_summary_names_the_latest_actions_in_one_line() {
        let mut made = episode("a");
        made.turns = (0..7)
            .map(|turn| DemonstrationTurn {
                action: format!("go\nto {turn}"),
                ..DemonstrationTurn::default()
            })
            .collect();
        assert_eq!(latest_actions(&made, 2), "2 actions so far, the latest: go to 0; go to 1.");
        assert_eq!(latest_actions(&made, 6).matches("go to").count(), 5);
    }

    #[test]
    fn tasks_are_taken_in_turn_and_what_is_not_worth_imitating_is_counted() {
        let request = DemonstrationRequest { count: 7, ..Default::default() };
        let made = play_all(&["a", "b", "c"], &request, |task, _| Ok((*task != "b").then(|| episode(task))));
        let made = made.unwrap();
        assert_eq!((ids(&made), made.dropped), (vec!["a", "c", "a", "c", "a"], 2));
        let none: [&str; 0] = [];
        assert_eq!(
            play_all(&none, &request, |task, _| Ok(Some(episode(task)))).unwrap(),
            Demonstrations::default()
        );
        let failing = play_all(&["a"], &request, |_, _| Err(EnvError::NotReset));
        assert!(failing.is_err());
        let seeds = |request: &DemonstrationRequest<'_>| {
            let seeds = std::sync::Mutex::new(Vec::new());
            let found = play_all(&[()], request, |(), seed| {
                seeds.lock().unwrap().push(seed);
                Ok(None)
            });
            assert_eq!(found.unwrap().dropped, request.count);
            let mut seeds = seeds.into_inner().unwrap();
            seeds.sort_by_key(|seed| format!("{seed:?}"));
            seeds.dedup();
            seeds
        };
        assert_eq!(seeds(&request).len(), 7);
        assert_ne!(seeds(&request), seeds(&DemonstrationRequest { seed: 1, ..request }));
    }

    #[test]
    fn episodes_that_the_world_failed_are_left_out_unless_it_failed_all() {
        let request = DemonstrationRequest { count: 4, ..Default::default() };
        let play = |task: &&str, _| match *task {
            "broken" => Err(EnvError::NotReset),
            task => Ok(Some(episode(task))),
        };
        let made = play_in_turn(&["a", "broken"], &request, play).unwrap();
        assert_eq!((ids(&made), made.dropped, made.failed), (vec!["a", "a"], 2, 2));
        assert_eq!(made.failure, Some(EnvError::NotReset.to_string()));
        assert!(play_in_turn(&["broken"], &request, play).is_err());
        let unsolved = |task: &&str, seed| match *task {
            "broken" => play(task, seed),
            _ => Ok(None),
        };
        let made = play_in_turn(&["a", "broken"], &request, unsolved).unwrap();
        assert_eq!((ids(&made).len(), made.dropped), (0, 4));
        let wrong = DemonstrationRequest { invalid_action_prob: 1.0, ..request };
        assert!(play_in_turn(&["a"], &wrong, play).unwrap_err().to_string().contains("invalid_action_prob"));
    }

    #[test]
    fn no_more_is_played_once_the_caller_has_had_enough() {
        let enough =
            DemonstrationRequest { count: 100_000, played: &|| ControlFlow::Break(()), ..Default::default() };
        let made = play_all(&["a"], &enough, |task, _| Ok(Some(episode(task)))).unwrap();
        assert!((1..1_000).contains(&made.episodes.len()), "{}", made.episodes.len());
        assert_eq!(
            play_in_turn(&["a"], &enough, |task, _| Ok(Some(episode(task)))).unwrap().episodes.len(),
            1
        );
    }
}
