//! Expert that plays a shortest solution.

use turnwise_core::{Action, EnvError, Environment as _, Observation, Purpose, Rng, Seed, Task};

use super::level::parse;
use super::room::{Direction, Room};
use super::set::SokobanSet;
use super::solver::Solver;
use crate::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_all,
};
use crate::world::Advisor;

const NO_ACTION: &str = "push";

/// Expert that solves the current room.
#[derive(Default)]
pub struct Expert {
    solver: Solver,
}

impl Expert {
    /// Returns the first move of a shortest solution, or `None` if the room is solved or no
    /// solution was found.
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

/// Plays demonstrations. Each move is random with probability `random_move_prob`, and SFT imitates
/// random moves too. An episode ends when its level has become unsolvable. If the probability is 0,
/// only solved episodes are kept.
pub(super) fn demonstrate(
    set: &SokobanSet,
    request: &DemonstrationRequest<'_>,
    random_move_prob: f64,
) -> Result<Demonstrations, EnvError> {
    play_all(set.split(request.split)?, request, |task, seed| {
        play(set, task, request, random_move_prob, &mut seed.rng())
    })
}

fn play(
    set: &SokobanSet,
    task: &Task,
    request: &DemonstrationRequest<'_>,
    random_move_prob: f64,
    rng: &mut Rng,
) -> Result<Option<Demonstration>, EnvError> {
    let mut expert = Expert::default();
    let mut environment = set.sokoban();
    let mut observation = environment.reset(task, Seed::derive(0, Purpose::Environment, &[]))?;
    let mut plan: Vec<Direction> = Vec::new();
    let mut turns = Vec::new();
    let mut solved = false;
    while !solved && turns.len() < request.max_turns {
        if plan.is_empty() {
            let moves = environment.room().and_then(|room| expert.solver.solve(room).moves());
            plan.extend(moves.into_iter().flatten().rev());
            if plan.is_empty() {
                break;
            }
        }
        let imitate = !rng.chance(request.invalid_action_prob);
        let action = if !imitate {
            NO_ACTION
        } else if rng.chance(random_move_prob) {
            plan.clear();
            Direction::ALL[rng.below(4)].word()
        } else {
            let Some(direction) = plan.pop() else { break };
            direction.word()
        };
        let step = environment.step(&Action::from(action))?;
        let before = std::mem::replace(&mut observation, step.observation);
        turns.push(DemonstrationTurn::new(before, request.keep_admissible, action, imitate, step.reward));
        solved = step.success;
        if step.truncated {
            break;
        }
    }
    let imitated = solved || (random_move_prob > 0.0 && !turns.is_empty());
    let final_observation = observation.into_text();
    Ok(imitated.then(|| Demonstration { task: task.clone(), tools: Vec::new(), turns, final_observation }))
}

#[cfg(test)]
mod tests {
    use super::super::generator::GeneratorConfig;
    use super::super::set::SokobanOptions;
    use super::*;

    #[test]
    fn an_episode_ends_with_the_move_that_leaves_no_solution() {
        let config = GeneratorConfig { train: 60, valid: 0, test: 0, ..GeneratorConfig::default() };
        let set = SokobanSet::new(&config, None, SokobanOptions::default(), None).unwrap();
        let request = DemonstrationRequest {
            count: 300,
            max_turns: 15,
            invalid_action_prob: 0.1,
            seed: 3,
            ..DemonstrationRequest::default()
        };
        let made = demonstrate(&set, &request, 0.7).unwrap();
        let (mut spoiled, mut solver) = (0, Solver::default());
        for episode in &made.episodes {
            let mut room = set.level(&episode.task.id).unwrap().clone();
            for turn in &episode.turns {
                assert!(solver.solve(&room).moves().is_some(), "{}: {}", episode.task.id, turn.observation);
                if let Some(direction) = Direction::ALL.into_iter().find(|known| known.word() == turn.action)
                {
                    room.act(direction);
                }
            }
            let is_lost = solver.solve(&room).moves().is_none();
            assert!(is_lost || room.is_solved() || episode.turns.len() == 15, "{}", episode.task.id);
            spoiled += usize::from(is_lost);
        }
        assert!(spoiled > 20, "{spoiled} of {}", made.episodes.len());
    }

    #[test]
    fn a_noisy_expert_is_imitated_where_it_misses_its_goal_too() {
        let config = GeneratorConfig { train: 60, valid: 0, test: 0, ..GeneratorConfig::default() };
        let set = SokobanSet::new(&config, None, SokobanOptions::default(), None).unwrap();
        let made = |random_move_prob: f64| {
            let request =
                DemonstrationRequest { count: 60, max_turns: 15, seed: 3, ..DemonstrationRequest::default() };
            demonstrate(&set, &request, random_move_prob).unwrap()
        };
        let solved = |episode: &&Demonstration| episode.turns.last().unwrap().reward > 5.0;
        let careful = made(0.0);
        assert_eq!((careful.episodes.len(), careful.dropped), (60, 0));
        assert_eq!(careful.episodes.iter().filter(solved).count(), 60);
        let noisy = made(0.8);
        assert!(noisy.dropped < 3, "{}", noisy.dropped);
        let won = noisy.episodes.iter().filter(solved).count();
        assert!((5..45).contains(&won), "{won} of {}", noisy.episodes.len());
        assert!(noisy.episodes.iter().all(|episode| (1..=15).contains(&episode.turns.len())));
    }
}
