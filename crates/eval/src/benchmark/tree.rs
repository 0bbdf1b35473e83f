//! Measures true advantages by averaging returns over many samples of a task, without saved states.
//!
//! If the environment depends only on the actions, samples that begin with the same responses share
//! a state and form a tree. `V` is the mean return of the samples that visit a state, and `Q` the
//! mean return of those among them that continue with the same response. A trajectory's own group
//! is excluded, because methods see its returns.
//!
//! Only early turns and likely responses get enough samples, unlike with [`super::branching`].

use std::collections::HashMap;

use turnwise_benchmark::truth::{TurnTruth, mean_and_error};
use turnwise_core::{Trajectory, Turn};

/// Settings of `tree_truth`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TreeSettings {
    /// Number of trajectories per group.
    pub group_size: usize,
    /// Discount of returns.
    pub gamma: f64,
    /// Minimum number of samples that visit a state, not counting the trajectory's own group.
    pub fewest: usize,
    /// Minimum number of samples that visit a state and continue with the same response.
    pub fewest_next: usize,
}

impl Default for TreeSettings {
    fn default() -> Self {
        Self { group_size: 8, gamma: 1.0, fewest: 40, fewest_next: 20 }
    }
}

/// Returns the true advantage of each turn of one task's samples; `None` for turns with too few
/// samples. Every `group_size` consecutive samples form a group.
pub fn tree_truth(samples: &[Trajectory], settings: &TreeSettings) -> Vec<Vec<Option<TurnTruth>>> {
    let tree = Tree::new(samples);
    let returns: Vec<Vec<f64>> = samples.iter().map(|sample| sample.step_returns(settings.gamma)).collect();
    let of = |(index, sample): (usize, &Trajectory)| {
        let group = index / settings.group_size;
        let others = |node: usize| {
            tree.members[node].iter().copied().filter(move |member| member / settings.group_size != group)
        };
        let path = &tree.paths[index];
        (0..sample.turns.len())
            .map(|turn| {
                let reward = sample.turns.get(turn).map_or(0.0, Turn::credited_reward);
                let through: Vec<usize> = others(path[turn]).collect();
                let next: Vec<usize> = others(path[turn + 1]).collect();
                let last = turn + 1 == sample.turns.len();
                if through.len() < settings.fewest || (!last && next.len() < settings.fewest_next) {
                    return None;
                }
                let goes_on = |member: &usize| tree.paths[*member].get(turn + 1) == path.get(turn + 1);
                let rest = through.iter().copied().filter(|member| !goes_on(member)).collect();
                let counted = Counted { reward, last, turn, through, next, rest, returns: &returns };
                Some(of_turn(&counted, settings.gamma))
            })
            .collect()
    };
    samples.iter().enumerate().map(of).collect()
}

struct Counted<'a> {
    reward: f64,
    last: bool,
    turn: usize,
    /// Indices of the samples that visit the state.
    through: Vec<usize>,
    next: Vec<usize>,
    rest: Vec<usize>,
    returns: &'a [Vec<f64>],
}

fn of_turn(counted: &Counted<'_>, gamma: f64) -> TurnTruth {
    let Counted { reward, last, turn, through, next, rest, returns } = counted;
    let from = |members: &[usize], turn: usize| -> Vec<f64> {
        members.iter().map(|&member| returns[member].get(turn).copied().unwrap_or(0.0)).collect()
    };
    let q_of = |members: &[usize]| {
        let (mean, error) = if *last { (0.0, 0.0) } else { mean_and_error(&from(members, turn + 1)) };
        (reward + gamma * mean, gamma * error)
    };
    let (v, v_error) = mean_and_error(&from(through, *turn));
    let (q, q_error) = q_of(next);
    let a_star = q - v;
    // The samples of Q are a subset of those of V, so A* = (1 - p) (Q - V of the rest).
    let share = 1.0 - next.len() as f64 / through.len() as f64;
    let a_star_error = share * q_error.hypot(mean_and_error(&from(rest, *turn)).1);
    let halves = [0, 1].map(|half| {
        let of_half = |members: &[usize]| -> Vec<usize> {
            members.iter().copied().filter(|member| member % 2 == half).collect()
        };
        q_of(&of_half(next)).0 - mean_and_error(&from(&of_half(through), *turn)).0
    });
    TurnTruth { v, v_error, q, q_error, a_star, a_star_error, k: through.len(), halves, returns: Vec::new() }
}

struct Tree {
    /// Indices of the samples that visit each node, in ascending order.
    members: Vec<Vec<usize>>,
    /// Each sample's nodes: the root, then one per response.
    paths: Vec<Vec<usize>>,
}

impl Tree {
    fn new(samples: &[Trajectory]) -> Self {
        let mut next: HashMap<(usize, &[u32]), usize> = HashMap::new();
        let mut tree = Self { members: vec![Vec::new()], paths: Vec::with_capacity(samples.len()) };
        for (index, sample) in samples.iter().enumerate() {
            let (mut node, mut path) = (0, vec![0]);
            tree.members[0].push(index);
            for turn in &sample.turns {
                let new = tree.members.len();
                node = *next.entry((node, turn.response_ids.as_slice())).or_insert(new);
                if node == new {
                    tree.members.push(Vec::new());
                }
                tree.members[node].push(index);
                path.push(node);
            }
            tree.paths.push(path);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::Task;

    use super::*;

    /// Builds samples from one number per response and the last response's reward.
    fn samples(of: &[(&[u32], f64)]) -> Vec<Trajectory> {
        let sample = |(responses, reward): &(&[u32], f64)| {
            let turn = |(index, &response): (usize, &u32)| Turn {
                response_ids: vec![response],
                reward: if index + 1 == responses.len() { *reward } else { 0.0 },
                ..Turn::default()
            };
            Trajectory::new(Task::new("t", "k", "g"), responses.iter().enumerate().map(turn).collect())
        };
        of.iter().map(sample).collect()
    }

    #[test]
    fn values_are_counts_of_the_other_groups() {
        // Response 1 then 3 earns 1, all else 0.
        let played = samples(&[
            (&[1, 3], 1.0),
            (&[2, 4], 0.0),
            (&[1, 3], 1.0),
            (&[1, 4], 0.0),
            (&[1, 3], 1.0),
            (&[2, 4], 0.0),
        ]);
        let settings = TreeSettings { group_size: 2, gamma: 1.0, fewest: 2, fewest_next: 1 };
        let truth = tree_truth(&played, &settings);
        let first = truth[0][0].as_ref().unwrap();
        // Of samples 2 to 5, two of four earn, and two of three with response 1.
        assert_eq!((first.v, first.k), (0.5, 4));
        assert!((first.q - 2.0 / 3.0).abs() < 1e-12 && (first.a_star - (2.0 / 3.0 - 0.5)).abs() < 1e-12);
        // (1 - 3/4) times the error of Q; the rest is one sample.
        let expected = (4.0_f64 / 9.0 + 1.0 / 9.0 + 1.0 / 9.0) / 2.0 / 3.0;
        assert!((first.q_error - expected.sqrt()).abs() < 1e-12, "{}", first.q_error);
        assert!((first.a_star_error - 0.25 * expected.sqrt()).abs() < 1e-12);
        // Even samples 2 and 4 earn 1; of odd ones, 3 and 5 earn 0 and only 3 has response 1.
        assert_eq!(first.halves, [0.0, 0.0]);
        // V of the last turn's state is counted over samples 2, 3 and 4.
        let last = truth[0][1].as_ref().unwrap();
        assert!((last.q, last.q_error) == (1.0, 0.0) && (last.v - 2.0 / 3.0).abs() < 1e-12);
        assert!(truth[1][0].as_ref().is_some_and(|truth| (truth.q, truth.v) == (0.0, 0.5)));
        let rare = tree_truth(&played, &TreeSettings { fewest_next: 2, ..settings });
        assert!(rare[1][0].is_none() && rare[0][0].is_some());
        let own = tree_truth(&played, &TreeSettings { group_size: 1, ..settings });
        assert_ne!(own[0][0].as_ref().unwrap().v, first.v);
    }
}
