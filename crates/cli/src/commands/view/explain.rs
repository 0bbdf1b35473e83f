//! Explanations of advantages: recorded by the run, or else recomputed. Recomputed advantages are
//! compared with the recorded ones.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use turnwise_core::{Batch, Group, PerTurn, StageRecord, Trajectory};
use turnwise_credit::{CreditConfig, CreditInputs, CreditReport, ModelInputs, Pipeline, RequiredInputs};
use turnwise_train::rollout::is_faulty;
use turnwise_trajectory_io::DumpBatch;

use super::source::{Method, origin_in_words};
use super::step::{Shown, Step};
use crate::registries::methods;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Explained {
    /// The explanations were recorded by the run.
    Recorded,
    /// Recomputed with the run's settings; all advantages equal the recorded ones.
    Recomputed,
    /// Recomputed with the run's settings; the value is the largest difference from a recorded
    /// advantage.
    Differs(f64),
    /// Computed with the run's settings; the value is the number of trajectories without recorded
    /// advantages.
    Unrecorded(usize),
    /// Computed with the named preset instead of the run's method.
    Preset(String),
    /// The advantages cannot be explained; the value is the reason.
    Nothing(String),
}

/// Settings needed to recompute advantages. Other keys are not parsed, because they may name
/// environments or methods that this program lacks.
#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    credit: CreditConfig,
}

pub(crate) fn of_config(text: &str) -> Result<String, toml::de::Error> {
    toml::from_str(text).map(|settings: Settings| in_words(&settings.credit))
}

fn in_words(config: &CreditConfig) -> String {
    let mut text = config.estimator.kind().to_owned();
    for refinement in &config.refinements {
        text.push_str(&format!(", then {}", refinement.kind()));
    }
    if config.outliers.is_some() {
        text.push_str(", with outliers");
    }
    text
}

pub(super) fn of_run(number: u64, mut batch: Batch, config: &Path) -> anyhow::Result<Step> {
    let error = |reason: String| anyhow::anyhow!("{}: {reason}", config.display());
    let text = std::fs::read_to_string(config).map_err(|source| error(source.to_string()))?;
    let settings: Settings = toml::from_str(&text).map_err(|source| error(source.to_string()))?;
    let method = Some(in_words(&settings.credit));
    if batch.trajectories().any(|trajectory| trajectory.explanation.is_some()) {
        let step = recorded(number, batch, None, Explained::Recorded);
        return Ok(Step { method, ..step });
    }
    let left_out = take_left_out(&mut batch);
    let report = match again(&batch, &settings) {
        Ok(report) => report,
        Err(reason) => {
            batch.groups.extend(left_out);
            let step = recorded(number, batch, None, Explained::Nothing(reason));
            return Ok(Step { method, ..step });
        }
    };
    let explained = compared(&batch, &report.advantages);
    let diagnostics = report.diagnostics.clone();
    batch.groups.extend(left_out);
    let groups = with_report(batch, None, report, true);
    Ok(Step { number, groups, method, explained, first: String::new(), diagnostics })
}

/// Removes and returns the groups that training did not use: failed trajectories, and groups that
/// became too small. Training writes these groups last and without advantages, and credit methods
/// must not see them.
fn take_left_out(batch: &mut Batch) -> Vec<Group> {
    let trained = |group: &Group| group.trajectories.iter().any(|member| member.advantages.is_some());
    let whole = |group: &Group| !group.trajectories.iter().all(is_faulty);
    let last = batch.groups.iter().rposition(trained).or_else(|| batch.groups.iter().rposition(whole));
    batch.groups.split_off(last.map_or(batch.groups.len(), |last| last + 1))
}

fn again(batch: &Batch, settings: &Settings) -> Result<CreditReport, String> {
    let pipeline =
        Pipeline::with_registry(&settings.credit, &methods().credit).map_err(|error| error.to_string())?;
    if let Some(what) = from_models(pipeline.required_inputs()) {
        return Err(format!(
            "this method takes {what} from a model, which is not written down; `train.explain = true` keeps the explanation of every turn"
        ));
    }
    let embedder = turnwise_train::embedder(&settings.credit).map_err(|error| error.to_string())?;
    let inputs = CreditInputs::new(batch).at(settings.seed, drawn_at(batch)).with_embedder(&*embedder);
    pipeline.report(&inputs, true).map_err(|error| error.to_string())
}

/// Returns the step that seeds random draws, counted from 0 (file names count from 1).
fn drawn_at(batch: &Batch) -> u64 {
    batch.trajectories().next().map_or(0, |trajectory| trajectory.step)
}

fn from_models(needs: RequiredInputs) -> Option<&'static str> {
    if needs.values {
        Some("values")
    } else if needs.credits {
        Some("credits")
    } else if needs.hidden_states.is_some() {
        Some("hidden states")
    } else {
        needs.scores.then_some("scores")
    }
}

fn compared(batch: &Batch, advantages: &PerTurn<f64>) -> Explained {
    let (mut most, mut missing) = (0.0_f64, 0);
    for (trajectory, computed) in batch.trajectories().zip(advantages.rows()) {
        let Some(own) = &trajectory.advantages else {
            missing += 1;
            continue;
        };
        for (own, computed) in own.iter().zip(computed) {
            if own.to_bits() != computed.to_bits() {
                let difference = (own - computed).abs();
                most = most.max(if difference.is_nan() { f64::INFINITY } else { difference });
            }
        }
    }
    match (missing, most) {
        (0, 0.0) => Explained::Recomputed,
        (missing, 0.0) => Explained::Unrecorded(missing),
        (_, most) => Explained::Differs(most),
    }
}

pub(super) fn by_method(
    number: u64,
    mut batch: Batch,
    dump: Option<&DumpBatch>,
    method: &Method,
) -> anyhow::Result<Step> {
    let Method { name, config, pipeline, seed } = method;
    // A dump's inputs have a row per trajectory, so none may be removed.
    let left_out = if dump.is_none() { take_left_out(&mut batch) } else { Vec::new() };
    let model_inputs = match dump {
        Some(dump) => ModelInputs {
            values: Some(dump.values()),
            credits: Some(dump.credits()),
            ..ModelInputs::default()
        },
        None => ModelInputs::default(),
    };
    let embedder = turnwise_train::embedder(config)?;
    let inputs = CreditInputs::new(&batch)
        .at(*seed, drawn_at(&batch))
        .with_embedder(&*embedder)
        .with_model_inputs(&model_inputs);
    let report =
        pipeline.report(&inputs, true).map_err(|error| anyhow::anyhow!("--preset {name}: {error}"))?;
    let diagnostics = report.diagnostics.clone();
    batch.groups.extend(left_out);
    let groups = with_report(batch, dump, report, false);
    let explained = Explained::Preset(name.clone());
    Ok(Step { number, groups, method: Some(in_words(config)), explained, first: name.clone(), diagnostics })
}

pub(super) fn of_file(number: u64, batch: Batch, dump: Option<&DumpBatch>) -> Step {
    let explained = if batch.trajectories().any(|trajectory| trajectory.explanation.is_some()) {
        Explained::Recorded
    } else {
        Explained::Nothing("the file has none; `--preset NAME` computes advantages by a method".into())
    };
    recorded(number, batch, dump, explained)
}

fn recorded(number: u64, batch: Batch, dump: Option<&DumpBatch>, explained: Explained) -> Step {
    let groups = shown(batch, dump, |_, _, trajectory| {
        (trajectory.advantages.take(), trajectory.explanation.take().unwrap_or_default())
    });
    Step { number, groups, method: None, explained, first: String::new(), diagnostics: BTreeMap::new() }
}

/// Returns the trajectories with a report's explanations. The report's advantages replace the
/// recorded ones unless `keep` is set.
fn with_report(batch: Batch, dump: Option<&DumpBatch>, report: CreditReport, keep: bool) -> Vec<Vec<Shown>> {
    let mut explanations = Vec::from(report.explanations);
    shown(batch, dump, |group, index, trajectory| {
        let own = trajectory.advantages.take().filter(|_| keep);
        let computed = || report.advantages.row(group, index).map(<[f64]>::to_vec);
        let explanation = explanations.get_mut(group).and_then(|group| group.get_mut(index));
        (own.or_else(computed), explanation.map(std::mem::take).unwrap_or_default())
    })
}

fn shown(
    batch: Batch,
    dump: Option<&DumpBatch>,
    mut credit: impl FnMut(usize, usize, &mut Trajectory) -> (Option<Vec<f64>>, Vec<Vec<StageRecord>>),
) -> Vec<Vec<Shown>> {
    let mut groups = Vec::with_capacity(batch.groups.len());
    for (number, group) in batch.groups.into_iter().enumerate() {
        let members = group.trajectories.into_iter().enumerate();
        let shown = members.map(|(index, mut trajectory)| {
            let (advantages, explanation) = credit(number, index, &mut trajectory);
            let origin = dump.map(|dump| &dump.origins[number][index]);
            let (group, place) = origin_in_words(&trajectory, origin);
            let success = origin.map_or(Some(trajectory.success), |origin| origin.success);
            Shown { trajectory, group, place, success, advantages, explanation, beside: Vec::new() }
        });
        groups.push(shown.collect());
    }
    groups
}

#[cfg(test)]
mod tests {
    use turnwise_core::{StopReason, Task, Turn};

    use super::*;

    fn batch() -> Batch {
        let trajectory = |reward: f64| {
            let turn = Turn {
                observation: "a room".into(),
                action: "look".into(),
                valid: true,
                reward,
                ..Turn::default()
            };
            Trajectory::new(Task::new("t", "k", "g"), vec![turn])
        };
        Batch { groups: vec![Group { trajectories: vec![trajectory(1.0), trajectory(0.0)] }] }
    }

    fn run_step(batch: Batch, config: &str) -> Step {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, config).unwrap();
        of_run(7, batch, &path).unwrap()
    }

    fn method(name: &str, config: &str) -> Method {
        Method::new(name, serde_json::from_str(config).unwrap(), 0).unwrap()
    }

    #[test]
    fn advantages_computed_again_are_held_against_the_recorded_ones() {
        let config = "seed = 3\n[env]\nkind = \"another program's\"\n[credit.estimator]\nkind = \"rloo\"\n";
        let mut batch = batch();
        batch.groups[0].trajectories[0].advantages = Some(vec![1.0]);
        assert_eq!(run_step(batch.clone(), config).explained, Explained::Unrecorded(1));
        batch.groups[0].trajectories[1].advantages = Some(vec![-1.0]);
        let step = run_step(batch.clone(), config);
        assert_eq!((step.explained, step.method.as_deref()), (Explained::Recomputed, Some("rloo")));
        assert_eq!(step.groups[0][0].stages(0)[0].facts.get("score"), Some(1.0));
        batch.groups[0].trajectories[1].advantages = Some(vec![-0.75]);
        let step = run_step(batch, config);
        assert_eq!((step.explained, step.groups[0][1].advantage(0)), (Explained::Differs(0.25), Some(-0.75)));
    }

    #[test]
    fn trajectories_that_training_left_out_get_no_advantages_and_move_none() {
        let config = "[credit.estimator]\nkind = \"grpo\"\n[[credit.refinements]]\nkind = \"empg\"\n";
        let mut batch = batch();
        for (trajectory, entropy) in batch.groups[0].trajectories.iter_mut().zip([0.5, 1.5]) {
            trajectory.turns[0].entropies = vec![entropy];
        }
        let trained = run_step(batch.clone(), config);
        for index in 0..2 {
            let own = trained.groups[0][index].advantage(0).unwrap();
            batch.groups[0].trajectories[index].advantages = Some(vec![own]);
        }
        let mut failed = batch.groups[0].trajectories[0].clone();
        failed.stop = StopReason::EnvironmentError("the server is gone".into());
        failed.advantages = None;
        failed.turns[0].entropies = Vec::new();
        batch.groups.push(Group { trajectories: vec![failed] });
        let step = run_step(batch.clone(), config);
        assert_eq!(step.explained, Explained::Recomputed);
        assert_eq!((step.groups.len(), step.groups[1][0].advantage(0)), (2, None));
        let empg = method("empg", r#"{"estimator": {"kind": "grpo"}, "refinements": [{"kind": "empg"}]}"#);
        let step = by_method(0, batch, None, &empg).unwrap();
        assert_eq!(step.groups[1][0].advantage(0), None);
        assert_eq!(step.groups[0][0].advantage(0), trained.groups[0][0].advantage(0));
    }

    #[test]
    fn what_only_a_model_gives_is_said_to_be_missing() {
        for (config, what) in [
            ("[credit.estimator]\nkind = \"ppo\"\n", "values"),
            ("[[credit.refinements]]\nkind = \"has\"\ndecomposer = \"external\"\n", "credits"),
            ("[credit.estimator]\nkind = \"mine\"\n", "mine"),
        ] {
            let Explained::Nothing(reason) = run_step(batch(), config).explained else { panic!("{config}") };
            assert!(reason.contains(what), "{reason}");
        }
    }

    #[test]
    fn a_method_that_is_named_takes_the_place_of_the_recorded_advantages() {
        let mut batch = batch();
        batch.groups[0].trajectories[0].advantages = Some(vec![5.0]);
        let rloo = method("rloo", r#"{"estimator": {"kind": "rloo"}}"#);
        let step = by_method(0, batch.clone(), None, &rloo).unwrap();
        assert_eq!((step.groups[0][0].advantage(0), step.groups[0][1].advantage(0)), (Some(1.0), Some(-1.0)));
        let aem = method("aem-grpo", r#"{"refinements": [{"kind": "aem"}]}"#);
        let Err(error) = by_method(0, batch, None, &aem) else { panic!("there are no entropies") };
        assert!(format!("{error:#}").contains("--preset aem-grpo"), "{error:#}");
    }
}
