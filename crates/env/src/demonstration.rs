//! Demonstrations: episodes to imitate, of whatever world.

use turnwise_core::{Action, EnvError, Observation, Purpose, Rng, Seed, Task, TaskSet};

/// A request for demonstrations.
#[derive(Clone, Copy, Debug)]
pub struct DemonstrationRequest<'a> {
    /// The split whose tasks are played, taken in turn from the first.
    pub split: &'a str,
    /// Episodes played; fewer come back where some miss their goal.
    pub count: usize,
    /// Probability that an action which the world does not understand stands before a step; it is not to be imitated.
    pub invalid_action_prob: f64,
    /// Most turns of an episode, invalid actions included.
    pub max_turns: usize,
    /// Keep the turns' admissible actions. For prompts that list them; they are most of the memory.
    pub keep_admissible: bool,
    /// Seed of all draws.
    pub seed: u64,
}

/// One observation and the action that followed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemonstrationTurn {
    /// Observation that the agent acted on.
    pub observation: String,
    /// Actions it could have taken, if these were to be kept.
    pub admissible: Vec<String>,
    /// Action it took.
    pub action: String,
    /// True if the action is to be imitated; `false` for inserted invalid actions, which get no loss.
    pub imitate: bool,
    /// The reward of the action.
    pub reward: f64,
}

impl DemonstrationTurn {
    /// The turn after what was seen; its admissible actions are kept if they are asked for.
    pub fn new(
        seen: Observation,
        keep_admissible: bool,
        action: impl Into<String>,
        imitate: bool,
        reward: f64,
    ) -> Self {
        let mut seen = seen;
        let admissible = if keep_admissible { std::mem::take(&mut seen.admissible) } else { Vec::new() };
        Self { observation: seen.into_text(), admissible, action: action.into(), imitate, reward }
    }
}

/// One episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Demonstration {
    /// The task that was played.
    pub task: Task,
    /// The turns in order.
    pub turns: Vec<DemonstrationTurn>,
    /// Observation after the last action.
    pub final_observation: String,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demonstrations {
    /// The episodes that are worth imitating, in the order of the tasks.
    pub episodes: Vec<Demonstration>,
    /// Number of episodes that were played and left out.
    pub dropped: usize,
}

/// Episodes of a world without an expert, to train a tokenizer on and not to be imitated: every action is drawn from the
/// admissible ones; where there are none an episode is its first observation. Episodes that the world failed are left
/// out and counted.
///
/// # Errors
/// There is no such split, or the world failed in every episode.
pub fn explore(set: &dyn TaskSet, request: &DemonstrationRequest<'_>) -> Result<Demonstrations, EnvError> {
    let tasks = set.tasks(request.split)?;
    let (mut episodes, mut failed) = (Vec::with_capacity(request.count), None);
    if tasks.is_empty() {
        return Ok(Demonstrations::default());
    }
    for index in 0..request.count {
        let seed = Seed::derive(request.seed, Purpose::Demonstration, &[index as u64]);
        match wander(set, tasks[index % tasks.len()].clone(), request, seed) {
            Ok(episode) => episodes.push(episode),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if episodes.is_empty() => Err(error),
        _ => Ok(Demonstrations { dropped: request.count - episodes.len(), episodes }),
    }
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
    environment.close();
    Ok(Demonstration { task, turns, final_observation: observation.into_text() })
}
