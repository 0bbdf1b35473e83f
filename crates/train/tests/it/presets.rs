//! All method presets train with both layouts, with only their own stages, losses and metrics.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Action, EnvError, Environment, Group, Observation, Seed, Snapshot, StageRecord, Step, Task, TaskSet,
    Trajectory,
};
use turnwise_decompose::turnrd::{CreditRule, TurnRd, TurnRdConfig};
use turnwise_env::dataset::NoSettings;
use turnwise_env::registry::Registry;
use turnwise_env::world::{OpenOptions, World, WorldKind};
use turnwise_train::config::{Config, ConfigSource, Registries, load, presets};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{NoopObserver, Run, RunEnd, round_folder};

use crate::common;

/// A lamp that an action toggles if the sum of its bytes is even; the episode's end pays for each
/// toggle, so a random policy has different returns, repeated states and some progress.
#[derive(Default)]
struct Lamp {
    length: usize,
    turns: usize,
    toggles: usize,
    saves: bool,
}

impl Lamp {
    fn observation(&self) -> Observation {
        Observation::new(format!(
            "The lamp is {}.",
            if self.toggles.is_multiple_of(2) { "off" } else { "on" }
        ))
    }
}

impl Environment for Lamp {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        (self.turns, self.toggles) = (0, 0);
        Ok(self.observation())
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let even = action.text().bytes().map(usize::from).sum::<usize>().is_multiple_of(2);
        self.turns += 1;
        self.toggles += usize::from(even);
        let ended = self.turns == self.length;
        Ok(Step {
            observation: self.observation(),
            reward: if ended { self.toggles as f64 } else { 0.0 },
            terminated: ended,
            success: self.toggles == self.length,
            understood: true,
            progress: Some(self.toggles as f64 / self.length as f64),
            ..Step::default()
        })
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        Ok(self.saves.then(|| Snapshot(vec![self.turns as u8, self.toggles as u8])))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        (self.turns, self.toggles) = (snapshot.0[0].into(), snapshot.0[1].into());
        Ok(())
    }
}

struct Lamps {
    save: bool,
    length: usize,
}

impl TaskSet for Lamps {
    fn name(&self) -> &'static str {
        "lamp"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let task = |index| {
            let mut task = Task::new(format!("{split}-{index}"), "lamp", format!("toggle lamp {index}"));
            task.metadata.insert("index".into(), format!("{split}-{index}").into());
            task.metadata.insert(Task::ANSWER.into(), "on".into());
            task
        };
        Ok((0..4).map(task).collect())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Lamp { saves: self.save, length: self.length, ..Lamp::default() }))
    }
}

impl World for Lamps {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn has_expert(&self) -> bool {
        false
    }
}

struct LampKind {
    save: bool,
}

impl WorldKind for LampKind {
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "lamp"
    }

    fn summary(&self) -> &'static str {
        "a lamp and its switch"
    }

    fn open(&self, _: &NoSettings, options: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(Lamps { save: self.save, length: options.max_turns }))
    }
}

const PPO: &[&str] = &["ppo", "so-ppo", "turn-ppo"];
const DAPO: &[&str] = &["dapo", "aem-dapo", "salt-dapo"];
const DYNAMIC: &[&str] = &["gigpo-dynamic", "dapo", "aem-dapo", "salt-dapo", "stapo-dynamic"];
const GSPO: &[&str] = &["gspo", "aem-gspo", "salt-gspo"];
const STAPO: &[&str] = &["stapo", "stapo-dynamic"];
const GIGPO: &[&str] = &["gigpo", "gigpo-dynamic", "stapo", "stapo-dynamic", "aem-gigpo"];
const SORL: &[&str] = &["so-ppo", "so-grpo"];
const AEM: &[&str] = &["aem-grpo", "aem-dapo", "aem-gspo", "aem-gigpo"];
const DEEPSWE: &[&str] = &["deepswe", "aem-deepswe"];
const SALT: &[&str] = &["salt-grpo", "salt-rloo", "salt-dapo", "salt-gspo"];
const HAS: &[&str] =
    &["has-progressive", "has-judge", "has-attention", "has-attention-film", "has-turnrd", "has-turnrd-film"];
const TURNRD: &[&str] = &["has-attention", "has-attention-film", "has-turnrd", "has-turnrd-film"];
const WITH_KL: &[&[&str]] = &[STAPO, SORL, AEM, SALT, HAS];

const OWN: &[(&str, &[&[&str]])] = &[
    ("critic/explained_variance", &[PPO]),
    ("rollout/rounds", &[DYNAMIC, DEEPSWE]),
    ("rollout/compact_filtered", &[DEEPSWE]),
    ("rollout/overlong_turns", &[DAPO]),
    ("outliers/share", &[STAPO]),
    ("masked_context/reference_kl", &[STAPO]),
    ("outliers/masked_too_long", &[STAPO]),
    ("gigpo/anchor_states_per_turn", &[GIGPO]),
    ("normalization/factor", &[SORL]),
    ("empg/mean", &[&["empg"]]),
    ("rtmc/shared_turns", &[&["rtmc"]]),
    ("monte_carlo/first_value", &[&["vineppo"]]),
    ("continuations/tokens", &[&["vineppo"]]),
    ("perf/continuations_s", &[&["vineppo"]]),
    ("turn_credit/net_progress", &[&["turn-credit"]]),
    ("igpo/gain_abs_mean", &[&["igpo"]]),
    ("igpo/unscored", &[&["igpo"]]),
    ("privileged_gap/gap_abs_mean", &[&["privileged-gap"]]),
    ("privileged_gap/scored", &[&["privileged-gap"]]),
    ("aem/alpha_max", &[AEM, &["aem-deepswe"]]),
    ("salt/merge_rate", &[SALT]),
    ("has/skipped_groups", &[HAS]),
    ("has/early_turn_correlation", &[HAS]),
    ("judge/calls", &[&["has-judge"]]),
    ("turnrd/mse", &[TURNRD]),
    ("train/kl_coef", WITH_KL),
];

fn stages(preset: &str) -> Vec<&str> {
    let estimator = match preset {
        "rloo" | "salt-rloo" | "deepswe" | "aem-deepswe" => "rloo",
        "ppo" | "so-ppo" => "ppo",
        "gigpo" | "gigpo-dynamic" | "stapo" | "stapo-dynamic" | "aem-gigpo" => "gigpo",
        "hgpo" => "hgpo",
        "rtmc" => "rtmc",
        "turn-ppo" => "turn-ppo",
        "vineppo" => "monte-carlo",
        _ => "grpo",
    };
    let refinement = match preset.split('-').next().unwrap() {
        refinement @ ("aem" | "salt" | "has" | "empg") => Some(refinement),
        "stapo" => Some("outliers"),
        _ if ["turn-credit", "igpo", "privileged-gap"].contains(&preset) => Some(preset),
        _ => None,
    };
    std::iter::once(estimator).chain(refinement).collect()
}

/// Returns a stage's advantage by its equation; `None` if the recorded facts do not suffice.
fn by_equation(preset: &str, stage: &StageRecord, before: f64, trajectory: &Trajectory) -> Option<f64> {
    let fact = |name: &str| stage.facts.get(name);
    Some(match stage.stage.as_ref() {
        "grpo" if preset == "turn-credit" => fact("score")? - fact("mean")?,
        "grpo" if fact("std")? == 0.0 => 0.0,
        "grpo" => (fact("score")? - fact("mean")?) / (fact("std")? + 1e-6),
        // Four trajectories per group; the penalty is subtracted afterwards.
        "rloo" => {
            let outcome = trajectory.outcome_return();
            4.0 / 3.0 * (outcome - fact("mean")?) + fact("score")? - outcome
        }
        "gigpo" => fact("episode")? + fact("step")?,
        "hgpo" => {
            let levels =
                (1..=3).filter_map(|level| Some((f64::from(level + 1), fact(&format!("level_{level}"))?)));
            let (sum, weight) =
                levels.fold((0.0, 0.0), |(sum, all), (weight, a)| (sum + weight * a, all + weight));
            if weight > 0.0 { sum / weight } else { 0.0 }
        }
        "rtmc" => fact("action_value")? - fact("value")?,
        "turn-credit" => before + fact("level")? + fact("shift")?,
        "privileged-gap" => fact("factor")? * before,
        "aem" => fact("alpha")? * before,
        "empg" => fact("scale")? * before + fact("bonus")? - fact("centre")?,
        "salt" if fact("edge_size")? == 1.0 => fact("before")?,
        "has" if fact("alpha").is_some() => 0.5 * fact("trajectory")? + 0.5 * fact("turn")?,
        "outliers" => before,
        _ => return None,
    })
}

/// Checks advantages by their equations; returns the number of nonzero ones per stage.
fn check_explanations(preset: &str, trajectories: &[Trajectory]) -> Vec<usize> {
    let mut checked = vec![0; stages(preset).len()];
    for trajectory in trajectories {
        for records in trajectory.explanation.iter().flatten() {
            let names: Vec<&str> = records.iter().map(|record| record.stage.as_ref()).collect();
            assert_eq!(names, stages(preset), "{preset}");
            let mut before = 0.0;
            for (place, record) in records.iter().enumerate() {
                if let Some(expected) = by_equation(preset, record, before, trajectory) {
                    let close = (record.advantage - expected).abs() < 1e-9 * (1.0 + expected.abs());
                    assert!(close, "{preset}, {}: {} {expected}", record.stage, record.advantage);
                    checked[place] += usize::from(expected != 0.0);
                }
                before = record.advantage;
            }
        }
    }
    checked
}

#[test]
fn every_preset_trains_for_two_steps_in_both_layouts() {
    assert_eq!(presets().count(), 36);
    let judge = common::judge();
    let (mut wrong, mut tags) = (Vec::new(), BTreeSet::new());
    for preset in presets() {
        for layout in ["concatenated", "windowed"] {
            let mut more = vec![format!("prompt.layout={layout}")];
            if preset.starts_with("stapo") {
                // So few turns have no outliers.
                more.push("credit.outliers.locate=all".into());
            }
            if DEEPSWE.contains(&preset) {
                // Most groups of four have one outcome, and two steps are few.
                more.push("rollout.filter_groups={kind=\"rejection\",oversample=8}".into());
            }
            if preset == "privileged-gap" {
                // No episode of a random policy succeeds, so there is no peer.
                more.push("credit.refinements=[{kind=\"privileged-gap\",hint=\"answer\"}]".into());
            }
            if preset == "has-judge" {
                more.push("decomposer.model=scorer".into());
                more.push(format!("decomposer.endpoint=http://{judge}/v1"));
            }
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("run");
            let what = format!("{preset}, {layout}");
            let (lines, trajectories) = trained(&config(preset, &more), &root, &what);
            tags.extend(lines.iter().flat_map(|line| line.metrics.0.keys().cloned()));
            let found = problems(preset, &root, &lines, &trajectories);
            wrong.extend(found.into_iter().map(|problem| format!("{what}: {problem}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let missing: Vec<_> = tags.difference(&documented()).cloned().collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {}", missing.join(", "));
}

fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let tags = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    tags.flat_map(|tags| tags.split(", ").map(|tag| tag.trim_matches('`').to_owned())).collect()
}

fn problems(preset: &str, root: &Path, lines: &[MetricsLine], trajectories: &[Trajectory]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |right: bool, problem: String| wrong.extend((!right).then_some(problem));
    for (tag, owners) in OWN {
        let own = owners.iter().any(|presets| presets.contains(&preset));
        let has = lines.iter().map(|line| line.metrics.get(tag).is_some());
        check(has.clone().all(|has| has == own), format!("{tag} by step: {:?}", has.collect::<Vec<_>>()));
    }
    let all_of =
        |tag: &str| lines.iter().map(|line| line.metrics.get(tag).unwrap_or(0.0)).collect::<Vec<_>>();
    // Only a clip range of 4e-4 clips in the second update; one of 0.2 does not.
    let clipped = all_of("loss/clip_frac");
    let leaves = GSPO.contains(&preset);
    check(clipped.iter().all(|&share| (share > 0.0) == leaves), format!("clipped tokens: {clipped:?}"));
    if preset == "has-judge" {
        check(all_of("judge/calls").iter().all(|&calls| calls > 0.0), "nobody was asked".into());
        let groups = trajectories.chunk_by(|one, next| one.group == next.group);
        let differ = |group: &&[Trajectory]| !Group { trajectories: group.to_vec() }.has_equal_returns();
        let worth_asking: usize = groups.clone().filter(differ).map(<[Trajectory]>::len).sum();
        let judged = all_of("judge/trajectories")[1];
        check(
            judged == worth_asking as f64,
            format!("{judged} trajectories judged, {worth_asking} in groups that differ"),
        );
        check(all_of("judge/fallbacks") == [0.0, 0.0], "the answers were not taken".into());
    }
    if TURNRD.contains(&preset) {
        let network = TurnRd::load(&round_folder(&root.join("turnrd"), 2)).unwrap();
        check(network.config().film == preset.ends_with("-film"), "another network".into());
        let (config, ours) = (network.config(), TurnRdConfig::default());
        let passes = (config.credits, config.epochs, config.older_per_new, config.min_improvement);
        let expected = if preset.starts_with("has-turnrd") {
            (CreditRule::Projection, 5, 1e6, 0.0)
        } else {
            (CreditRule::Attention, ours.epochs, ours.older_per_new, ours.min_improvement)
        };
        check(passes == expected, format!("credits and passes: {passes:?}"));
    }
    check(all_of("credit/advantage/std")[0] > 0.0, "there is nothing to learn".into());
    let checked = check_explanations(preset, trajectories);
    // PPO's and Turn-PPO's advantages come from critics; VinePPO's are whitened, and IGPO's are
    // sums over turns.
    let others = ["ppo", "turn-ppo", "monte-carlo", "igpo"];
    let again =
        checked.iter().zip(stages(preset)).all(|(&count, stage)| count > 0 || others.contains(&stage));
    check(again, format!("numbers computed again by stage: {checked:?}"));
    wrong
}

pub(crate) fn config(preset: &str, more: &[String]) -> Config {
    config_in(true, preset, more)
}

fn config_in(save: bool, preset: &str, more: &[String]) -> Config {
    let settings = "env.kind=lamp env.max_turns=4 prompt.template=plain prompt.validity=format \
                    policy.scratch.hidden_size=16 policy.scratch.layers=1 policy.scratch.heads=2 \
                    policy.scratch.key_value_heads=1 policy.scratch.intermediate_size=32 sft.steps=0 \
                    rollout.tasks_per_step=2 rollout.group_size=4 rollout.max_response_tokens=6 \
                    rollout.max_model_len=256 train.steps=2 train.learning_rate=1e-3 train.warmup=0 \
                    train.num_minibatches=1 train.ppo_epochs=2 train.skip_zero_advantage=false train.explain=true \
                    eval.splits=[\"test\"] eval.tasks=0";
    let overrides = settings.split_whitespace().map(str::to_owned).chain(more.iter().cloned()).collect();
    let registries = Registries { environments: lamps(save), ..Registries::builtin() };
    let source =
        ConfigSource { preset: Some(preset.to_owned()), overrides, registries, ..ConfigSource::default() };
    load(&source).unwrap()
}

fn lamps(save: bool) -> Registry {
    Registry::builtin().with(LampKind { save })
}

pub(crate) fn trained(config: &Config, root: &Path, what: &str) -> (Vec<MetricsLine>, Vec<Trajectory>) {
    let steps = config.train.steps;
    let mut run = Run::builder(config.clone())
        .environments(lamps(true))
        .directory(root)
        .start(&mut NoopObserver)
        .unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished, "{what}");
    let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
    assert_eq!(lines.len() as u64, steps, "{what}");
    for line in &lines {
        for (tag, value) in &line.metrics.0 {
            assert!(value.is_finite(), "{what}: {tag} is {value}");
        }
        assert!(line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6, "{what}");
    }
    let files = (1..=steps).map(|step| root.join(format!("trajectories/step-{step:06}.jsonl.zst")));
    (lines, files.flat_map(|file| read_trajectories(&file).unwrap()).collect())
}

#[test]
fn a_world_without_saved_states_is_rejected_before_the_run_starts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let error = Run::builder(config_in(false, "vineppo", &[]))
        .environments(lamps(false))
        .directory(&root)
        .start(&mut NoopObserver)
        .err()
        .unwrap();
    let error = error.to_string();
    assert!(error.contains("credit.estimator") && error.contains("monte-carlo"), "{error}");
    assert!(error.contains("the world `lamp` cannot save and restore its states"), "{error}");
    assert!(!root.exists(), "nothing was written");
    assert!(
        Run::builder(config_in(false, "grpo", &[]))
            .environments(lamps(false))
            .directory(&root)
            .start(&mut NoopObserver)
            .is_ok()
    );
}

#[test]
fn conversations_need_no_expert() {
    let folder = tempfile::tempdir().unwrap();
    let talks = folder.path().join("talks.jsonl");
    std::fs::write(&talks, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"on\"}]}").unwrap();
    let start = |more: &[String]| {
        let root = folder.path().join("run");
        Run::builder(config_in(true, "grpo", more))
            .environments(lamps(true))
            .directory(&root)
            .start(&mut NoopObserver)
            .err()
            .unwrap()
            .to_string()
    };
    let steps = "sft.steps=2".to_owned();
    let error = start(std::slice::from_ref(&steps));
    assert!(error.contains("the world `lamp` has no expert"), "{error}");
    let error = start(&[steps, format!("sft.data.path={}", talks.display())]);
    assert!(error.contains("the model's chat template, and it has none"), "{error}");
}

#[test]
fn measured_values_are_written_with_the_turns_and_do_not_depend_on_the_slots() {
    let folder = tempfile::tempdir().unwrap();
    let values = |name: &str, more: &[&str]| -> Vec<Vec<f64>> {
        let more: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
        let (lines, trajectories) = trained(&config("vineppo", &more), &folder.path().join(name), name);
        // Fewer than turns, because all episodes start alike.
        let states: f64 = lines.iter().filter_map(|line| line.metrics.get("continuations/states")).sum();
        let turns: usize = trajectories.iter().map(|trajectory| trajectory.turns.len()).sum();
        assert!(states > 0.0 && states < turns as f64, "{name}: {states} of {turns}");
        let sampled: f64 = lines.iter().filter_map(|line| line.metrics.get("continuations/sampled")).sum();
        assert_eq!(sampled, 9.0 * states);
        let of =
            |trajectory: &Trajectory| trajectory.turns.iter().map(|turn| turn.state_value.unwrap()).collect();
        trajectories.iter().map(of).collect()
    };
    let expected = values("slots", &[]);
    for members in expected.chunks(4) {
        assert!(members.iter().all(|member| member[0] == members[0][0]));
    }
    assert!(expected.iter().flatten().any(|&value| value > 0.0 && value.fract() != 0.0));
    assert_eq!(values("few slots", &["rollout.max_num_seqs=3"]), expected);
    // A dropped round changes the numbers of later groups, whose episodes keep their seeds.
    let dynamic = values("rounds", &["rollout.filter_groups={kind=\"dynamic\",max_rounds=3}"]);
    assert!(!dynamic.is_empty());
    assert_ne!(values("other seed", &["seed=1"]), expected);
}
