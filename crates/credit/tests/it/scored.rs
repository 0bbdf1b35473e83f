//! IGPO and the privileged gap: their requests, and hand-computed numbers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use turnwise_core::{Batch, PerToken, PerTurn, Task, Turn};
use turnwise_credit::{
    CreditConfig, CreditError, CreditInputs, InputProvider, ModelInputs, Pipeline, ScoreRequest,
};

use crate::common::{self, turn};

fn pipeline(refinement: &str) -> Pipeline {
    let config = format!(r#"{{"refinements": [{refinement}]}}"#);
    Pipeline::from_config(&serde_json::from_str::<CreditConfig>(&config).unwrap()).unwrap()
}

struct Scores(Vec<Vec<f32>>, Vec<ScoreRequest>);

impl InputProvider for Scores {
    type Error = CreditError;

    fn values(&mut self, _: &Batch) -> Result<PerToken<f64>, CreditError> {
        unreachable!("no critic was asked for")
    }

    fn credits(&mut self, _: &Batch) -> Result<PerTurn<f64>, CreditError> {
        unreachable!("no decomposer was asked for")
    }

    fn hidden_states(&mut self, _: &Batch, _: usize) -> Result<PerTurn<Vec<f32>>, CreditError> {
        unreachable!("no hidden states were asked for")
    }

    fn scores(&mut self, _: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, CreditError> {
        self.1 = requests.to_vec();
        Ok(self.0.clone())
    }
}

fn advantages(refinement: &str, batch: &Batch, scores: &[Vec<f32>]) -> (Vec<f64>, Vec<ScoreRequest>) {
    let pipeline = pipeline(refinement);
    let mut provider = Scores(scores.to_vec(), Vec::new());
    let model_inputs = pipeline.supply(batch, &mut provider).unwrap();
    let report = pipeline.report(&CreditInputs::new(batch).with_model_inputs(&model_inputs), true).unwrap();
    (report.advantages.values().copied().collect(), provider.1)
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
}

#[test]
fn information_gain_by_hand() {
    // Two trajectories of three turns and one; the answer's probabilities are 0.25, 0.5, 0.25 |
    // 0.25.
    let rewards = |rewards: &[f64]| rewards.iter().map(|&reward| turn("s", reward)).collect::<Vec<_>>();
    let mut batch = Batch { groups: vec![common::group(vec![rewards(&[0.0, 0.0, 1.0]), rewards(&[0.0])])] };
    let error = pipeline(r#"{"kind": "igpo"}"#).run(&batch).unwrap_err().to_string();
    assert!(error.contains("igpo needs `task.metadata.answer`") && error.contains("turn 0"), "{error}");
    for trajectory in &mut batch.groups[0].trajectories {
        trajectory.task.metadata.insert(Task::ANSWER.into(), "Klome".into());
    }
    let error = pipeline(r#"{"kind": "igpo"}"#).run(&batch).unwrap_err().to_string();
    assert!(error.contains("4 texts or responses, and 0"), "{error}");
    let half = 0.5_f32.ln();
    let scores = [vec![2.0 * half], vec![half, half], vec![2.0 * half, 2.0 * half], vec![2.0 * half]];
    let (found, requests) = advantages(r#"{"kind": "igpo"}"#, &batch, &scores);
    let request = ScoreRequest { lead: "<answer> ".into(), ..ScoreRequest::of_text(0, 0, 0, "Klome") };
    assert_eq!((requests.len(), &requests[0]), (4, &request));
    // Rewards 0.25, -0.25, 1 | 0: mean 0.25, sample deviation 0.540062.
    let [a, b, c, d] = [0.0, -0.925820, 1.388730, -0.462910];
    close(&found, &[a + b + c, b + c, c, d]);
    let (found, _) = advantages(r#"{"kind": "igpo", "gamma": 0.5}"#, &batch, &scores);
    close(&found, &[a + 0.5 * (b + 0.5 * c), b + 0.5 * c, c, d]);
    // Gains 0.25, -0.25 and outcomes 1, 0 are standardized apart.
    let [gain, outcome] = [std::f64::consts::FRAC_1_SQRT_2; 2];
    let (found, _) = advantages(r#"{"kind": "igpo", "standardize": "separate"}"#, &batch, &scores);
    close(&found, &[outcome, outcome - gain, outcome, -outcome]);
}

/// Creates a trajectory with one token of log-prob -1 per turn.
fn acts(actions: &[&str], reward: f64) -> Vec<Turn> {
    let last = actions.len() - 1;
    let act = |(index, action): (usize, &&str)| Turn {
        action: (*action).to_owned(),
        response_ids: vec![1],
        old_logprobs: vec![-1.0],
        ..turn("s", if index == last { reward } else { 0.0 })
    };
    actions.iter().enumerate().map(act).collect()
}

#[test]
fn hindsight_is_the_best_other_success_and_scales_what_the_outcome_signs() {
    let group = vec![acts(&["left", "open"], 1.0), acts(&["right", "wait"], 0.0), acts(&["left"], 1.0)];
    let mut batch = Batch { groups: vec![common::group(group)] };
    for (member, success) in [(0, true), (1, false), (2, true)] {
        batch.groups[0].trajectories[member].success = success;
    }
    let gap = r#"{"kind": "privileged-gap", "preamble": "so: {hint}.", "epsilon": 0.5}"#;
    // The gaps are 0.1, -0.2 | 0.3, -0.3 | 2; the last one is clipped.
    let scores: Vec<Vec<f32>> = [-0.9, -1.2, -0.7, -1.3, 1.0].map(|score| vec![score]).to_vec();
    let (found, requests) = advantages(gap, &batch, &scores);
    let preambles: Vec<&str> = requests.iter().map(|request| request.preamble.as_str()).collect();
    // The first success gets the third trajectory's actions, the others the first one's.
    assert_eq!(
        preambles,
        ["so: left.", "so: left.", "so: left\nopen.", "so: left\nopen.", "so: left\nopen."]
    );
    assert!(requests.iter().all(|request| request.text.is_none() && request.lead.is_empty()));
    let plain = Pipeline::from_config(&CreditConfig::default()).unwrap().run(&batch).unwrap();
    let factors = [0.1_f64.exp(), (-0.2_f64).exp(), (-0.3_f64).exp(), 0.3_f64.exp(), 1.5];
    let expected: Vec<f64> = plain.values().zip(factors).map(|(plain, factor)| plain * factor).collect();
    close(&found, &expected);
    // Without a success there is no hint; then, and with lambda = 0, advantages are bit-identical.
    let off = gap.replace("\"epsilon\"", "\"lambda\": 0.0, \"epsilon\"");
    assert_eq!(advantages(&off, &batch, &scores).0, plain.values().copied().collect::<Vec<_>>());
    batch.groups[0].trajectories.iter_mut().for_each(|trajectory| trajectory.success = false);
    let (found, requests) = advantages(gap, &batch, &[]);
    assert_eq!((found, requests.len()), (plain.values().copied().collect::<Vec<_>>(), 0));
}

#[test]
fn a_teacher_needs_a_place_for_the_hint_and_log_probs_to_compare() {
    let config = r#"{"refinements": [{"kind": "privileged-gap", "preamble": "so"}]}"#;
    let error = Pipeline::from_config(&serde_json::from_str(config).unwrap()).err().unwrap().to_string();
    assert!(error.contains("has no {hint}"), "{error}");
    let mut batch = Batch { groups: vec![common::group(vec![acts(&["a"], 1.0), acts(&["b"], 0.0)])] };
    batch.groups[0].trajectories[0].success = true;
    let whole = batch.clone();
    batch.groups[0].trajectories[1].turns[0].old_logprobs.clear();
    let pipeline = pipeline(r#"{"kind": "privileged-gap"}"#);
    let report = |scores: Vec<Vec<f32>>| {
        let model_inputs = ModelInputs { scores: vec![Vec::new(), scores], ..ModelInputs::default() };
        pipeline
            .report(&CreditInputs::new(&batch).with_model_inputs(&model_inputs), false)
            .unwrap_err()
            .to_string()
    };
    let error = report(vec![vec![-1.0]]);
    assert!(error.contains("needs `old_logprobs`") && error.contains("trajectory 1"), "{error}");
    let error = report(Vec::new());
    assert!(error.contains("1 texts or responses, and 0"), "{error}");
    let (found, _) = advantages(r#"{"kind": "privileged-gap"}"#, &whole, &[Vec::new()]);
    assert_eq!(found.len(), 2, "a response without room for the hint has no score");
    let model_inputs =
        ModelInputs { scores: vec![Vec::new(), vec![vec![-1.0, -1.0]]], ..ModelInputs::default() };
    let error = pipeline
        .report(&CreditInputs::new(&whole).with_model_inputs(&model_inputs), false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("trajectory 1, turn 0 has 2 log-probs, and its response has 1 tokens"), "{error}");
}
