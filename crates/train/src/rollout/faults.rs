//! Handles trajectories that failed for reasons other than the policy. Such trajectories would
//! distort their groups' mean and deviation.
//!
//! With [`crate::config::OnError::Resample`], failed trajectories are sampled again. Trajectories
//! without a successful attempt are removed from their groups before reward shaping, but trajectory
//! files keep them.

use turnwise_core::{Group, StopReason, Trajectory};

use crate::TrainError;

/// Returns whether the environment or sampler failed.
pub fn is_faulty(trajectory: &Trajectory) -> bool {
    trajectory.stop.is_failure()
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Failed trajectories, and the other members of dropped groups.
    pub(crate) trajectories: Vec<Trajectory>,
    pub(crate) failed: usize,
    /// Number of groups dropped because too few members were left for credit assignment.
    pub(crate) groups: usize,
}

impl Faults {
    pub(crate) fn take_out(groups: &mut Vec<Group>, least: usize) -> Self {
        let mut faults = Self::default();
        for group in groups.iter_mut() {
            let (failed, kept) = std::mem::take(&mut group.trajectories).into_iter().partition(is_faulty);
            let failed: Vec<Trajectory> = failed;
            faults.failed += failed.len();
            if !failed.is_empty() && kept.len() < least {
                faults.groups += 1;
                faults.trajectories.extend(kept);
            } else {
                group.trajectories = kept;
            }
            faults.trajectories.extend(failed);
        }
        groups.retain(|group| !group.trajectories.is_empty());
        faults
    }

    pub(crate) fn check(&self) -> Result<(), TrainError> {
        match self.reason() {
            Some(reason) => Err(TrainError::Rollout {
                failed: self.failed,
                sampled: self.trajectories.len(),
                reason: reason.to_owned(),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.trajectories.iter().find_map(|trajectory| match &trajectory.stop {
            StopReason::EnvironmentError(reason) | StopReason::SampleError(reason) => Some(reason.as_str()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Methods;
    use turnwise_core::{Batch, Task, Turn};
    use turnwise_credit::embedding::HashedNgrams;
    use turnwise_credit::{CreditConfig, CreditInputs, Pipeline};

    use super::*;

    fn trajectory(sample: usize, reward: f64, fails: bool) -> Trajectory {
        // One state connects the members in anchors and graphs.
        let turn = |turn: usize| Turn {
            observation: if turn == 0 { "start".into() } else { format!("after {}", sample % 2) },
            response: "r".into(),
            action: format!("a{}", sample % 3),
            valid: true,
            reward: if turn == 1 { reward } else { 0.0 },
            entropies: vec![0.1 * sample as f32, 0.3],
            ..Turn::default()
        };
        let stop = if fails { StopReason::EnvironmentError("gone".into()) } else { StopReason::Terminated };
        Trajectory {
            sample,
            stop,
            success: reward > 0.0,
            ..Trajectory::new(Task::new("t", "k", "g"), vec![turn(0), turn(1)])
        }
    }

    fn group(members: &[(f64, bool)]) -> Group {
        let of = |(sample, (reward, fails)): (usize, &(f64, bool))| trajectory(sample, *reward, *fails);
        Group { trajectories: members.iter().enumerate().map(of).collect() }
    }

    const MEMBERS: [(f64, bool); 6] =
        [(1.0, false), (0.0, true), (0.0, false), (1.0, false), (0.5, true), (0.0, false)];

    #[test]
    fn credit_is_that_of_the_group_without_those_that_failed() {
        let clean: Vec<Trajectory> =
            group(&MEMBERS).trajectories.into_iter().filter(|trajectory| !is_faulty(trajectory)).collect();
        let advantages = |groups: Vec<Group>, preset: &str| {
            let batch = Batch { groups };
            let mut settings = Methods::builtin().preset(preset).unwrap().unwrap();
            let credit: CreditConfig = settings.remove("credit").unwrap().try_into().unwrap();
            let pipeline = Pipeline::from_config(&credit).unwrap();
            let embedder = HashedNgrams::default();
            let mut inputs = CreditInputs::new(&batch);
            inputs.embedder = Some(&embedder);
            Vec::<Vec<Vec<f64>>>::from(pipeline.report(&inputs, false).unwrap().advantages)
        };
        for preset in ["grpo", "rloo", "gigpo", "salt-grpo", "aem-grpo"] {
            let mut groups = vec![group(&MEMBERS)];
            let faults = Faults::take_out(&mut groups, 2);
            assert_eq!((faults.failed, faults.groups, faults.reason()), (2, 0, Some("gone")), "{preset}");
            let expected = advantages(vec![Group { trajectories: clean.clone() }], preset);
            assert_eq!(advantages(groups, preset), expected, "{preset}");
            let naive = advantages(vec![group(&MEMBERS)], preset).remove(0);
            let of_the_others: Vec<_> = [0, 2, 3, 5].map(|member| naive[member].clone()).into();
            assert_ne!(of_the_others, expected[0], "{preset}");
        }
    }

    #[test]
    fn groups_that_credit_cannot_compare_are_dropped() {
        let single = [(1.0, false), (0.0, true), (0.0, true)];
        let mut groups = vec![group(&single), group(&MEMBERS)];
        let faults = Faults::take_out(&mut groups, 2);
        assert_eq!((groups.len(), groups[0].trajectories.len(), faults.groups, faults.failed), (1, 4, 1, 4));
        assert_eq!(faults.trajectories.len(), 5);
        let mut groups = vec![group(&single)];
        assert_eq!(Faults::take_out(&mut groups, 1).groups, 0);
        assert_eq!(groups[0].trajectories.len(), 1);
        let mut groups = vec![group(&[(1.0, false)])];
        let none = Faults::take_out(&mut groups, 2);
        assert_eq!((none.failed, groups.len()), (0, 1));
        assert!(none.check().is_ok());
        let error = Faults::take_out(&mut vec![group(&[(0.0, true)])], 1).check().unwrap_err().to_string();
        assert!(error.contains("gone") && error.contains("1 of 1"), "{error}");
    }
}
