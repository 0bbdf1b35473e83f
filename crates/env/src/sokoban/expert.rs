//! An expert that knows the shortest solution, and its episodes to imitate.

use rayon::prelude::*;
use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::level::parse;
use super::room::{Direction, Room};
use super::set::SokobanSet;
use super::solver::Solver;
use crate::demonstration::{Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations};
use crate::world::Advisor;

/// Words of a demonstration where it is to be misunderstood.
const NO_ACTION: &str = "push";

/// An expert that reads the room and walks a shortest solution from there.
#[derive(Default)]
pub struct Expert {
    solver: Solver,
}

impl Expert {
    /// The first move of a shortest solution; `None` where there is nothing to do or nothing to be done.
    pub fn next(&mut self, room: &Room) -> Option<Direction> {
        self.solver.solve(room).moves()?.first().copied()
    }
}

impl Advisor for Expert {
    fn advise(&mut self, observation: &Observation) -> String {
        let text: String =
            observation.text().chars().filter(|symbol| ![' ', '\t'].contains(symbol)).collect();
        let next = parse(&text).ok().and_then(|room| self.next(&room));
        next.map_or("still", Direction::word).to_owned()
    }
}

/// Lets the expert play `count` levels of a split, taken in turn from the first. With probability `random_move_prob` it
/// moves anywhere instead; such moves are imitated as well, and episodes that do not reach the goal are left out. The
/// result depends on the arguments alone, not on the number of threads.
pub(super) fn demonstrate(
    set: &SokobanSet,
    request: &DemonstrationRequest<'_>,
    random_move_prob: f64,
) -> Result<Demonstrations, EnvError> {
    let tasks = set.split(request.split)?;
    if tasks.is_empty() {
        return Ok(Demonstrations::default());
    }
    let played: Vec<Option<Demonstration>> = (0..request.count)
        .into_par_iter()
        .map_init(Expert::default, |expert, index| {
            let mut rng = Seed::derive(request.seed, Purpose::Demonstration, &[index as u64]).rng();
            play(set, &tasks[index % tasks.len()], request, random_move_prob, expert, &mut rng)
        })
        .collect::<Result<_, EnvError>>()?;
    let episodes: Vec<Demonstration> = played.into_iter().flatten().collect();
    let dropped = request.count - episodes.len();
    Ok(Demonstrations { episodes, dropped })
}

/// One episode; `None` if the level is not solved.
fn play(
    set: &SokobanSet,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    random_move_prob: f64,
    expert: &mut Expert,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let mut environment = set.sokoban();
    let mut observation = environment.reset(task, Seed::derive(0, Purpose::Environment, &[]))?;
    // The rest of a shortest solution, last move first; solved anew where it was left.
    let mut plan: Vec<Direction> = Vec::new();
    let mut turns = Vec::new();
    while turns.len() < request.max_turns {
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if !imitate {
            NO_ACTION
        } else if rng.chance(random_move_prob) {
            plan.clear();
            Direction::ALL[rng.below(4)].word()
        } else {
            if plan.is_empty() {
                let solved = environment.room().and_then(|room| expert.solver.solve(room).moves());
                let Some(moves) = solved else { return Ok(None) };
                plan.extend(moves.into_iter().rev());
            }
            let Some(direction) = plan.pop() else { return Ok(None) };
            direction.word()
        };
        let step = environment.step(&Action::from(action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        if step.success {
            let final_observation = observation.into_text();
            return Ok(Some(Demonstration { task: task.clone(), turns, final_observation }));
        }
        if step.truncated {
            break;
        }
    }
    Ok(None)
}
