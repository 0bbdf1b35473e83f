//! Methods of other crates, and requests to providers.
#![allow(clippy::unwrap_used)]

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, PerToken, PerTurn, Task, Trajectory, Turn};
use turnwise_credit::aem::{Aem, AemConfig, AemMode};
use turnwise_credit::gae::TokenAdvantages;
use turnwise_credit::{
    CreditConfig, CreditError, CreditInputs, Estimator, Explanation, InputProvider, ModelInputs, Pipeline,
    Refinement, RefinementConfig, Registry, RequiredInputs, ScoreRequest,
};

use crate::common::peer_batch;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LikelihoodConfig {
    text: String,
    scale: f64,
}

impl Default for LikelihoodConfig {
    fn default() -> Self {
        Self { text: "yes".into(), scale: 2.0 }
    }
}

struct Likelihood(LikelihoodConfig);

impl Refinement for Likelihood {
    fn name(&self) -> &'static str {
        "likelihood"
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs { scores: true, ..RequiredInputs::default() }
    }

    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let mut requests = Vec::new();
        PerTurn::from_fn(batch, |group, trajectory, turn| {
            requests.push(ScoreRequest::of_text(group, trajectory, turn, self.0.text.clone()));
        });
        requests
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        _: &mut Explanation,
    ) -> Result<(), CreditError> {
        for (advantage, score) in advantages.values_mut().zip(inputs.scores()) {
            *advantage += self.0.scale * score.iter().copied().map(f64::from).sum::<f64>();
        }
        Ok(())
    }
}

fn registry() -> Registry {
    Registry::builtin().with_refinement("likelihood", |config| Ok(Likelihood(config)))
}

/// Answers each request with its negated turn index, and records calls.
#[derive(Default)]
struct Recorded(Vec<&'static str>, usize);

impl InputProvider for Recorded {
    type Error = CreditError;

    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, CreditError> {
        self.0.push("values");
        Ok(PerToken::filled(batch, 0.0))
    }

    fn credits(&mut self, _: &Batch) -> Result<PerTurn<f64>, CreditError> {
        self.0.push("credits");
        Ok(PerTurn::from(vec![vec![vec![1.0]]]))
    }

    fn hidden_states(&mut self, batch: &Batch, _: usize) -> Result<PerTurn<Vec<f32>>, CreditError> {
        self.0.push("hidden states");
        Ok(PerTurn::filled(batch, Vec::new()))
    }

    fn scores(&mut self, _: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, CreditError> {
        self.0.push("scores");
        Ok(requests.iter().skip(self.1).map(|request| vec![-(request.turn as f32)]).collect())
    }
}

fn config(text: &str) -> CreditConfig {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_refinement_of_another_crate_reads_its_own_scores() {
    let both = config(r#"{"refinements": [{"kind": "likelihood"}, {"kind": "likelihood", "scale": -1}]}"#);
    let pipeline = Pipeline::with_registry(&both, &registry()).unwrap();
    let batch = peer_batch();
    let mut provider = Recorded::default();
    let model_inputs = pipeline.supply(&batch, &mut provider).unwrap();
    assert_eq!(provider.0, ["scores"], "one pass for all stages, and nothing else");
    assert_eq!(model_inputs.scores.iter().map(Vec::len).collect::<Vec<_>>(), [0, 5, 5]);
    let report = pipeline.report(&CreditInputs::new(&batch).with_model_inputs(&model_inputs), false).unwrap();
    let plain = Pipeline::from_config(&CreditConfig::default()).unwrap().run(&batch).unwrap();
    for (index, advantage) in report.advantages.iter() {
        assert!((advantage - (plain[index] - index.2 as f64)).abs() < 1e-12, "{index:?}");
    }
}

#[test]
fn settings_of_another_crate_are_typed_and_spelled_out() {
    let mut spelled_out = config(r#"{"refinements": [{"kind": "likelihood", "scale": 3}]}"#);
    registry().spell_out(&mut spelled_out).unwrap();
    let text = serde_json::to_string(&spelled_out.refinements).unwrap();
    assert_eq!(text, r#"[{"kind":"likelihood","scale":3.0,"text":"yes"}]"#);
    let wrong = config(r#"{"refinements": [{"kind": "likelihood", "scal": 3}]}"#);
    let refused = |config: &CreditConfig, registry: &Registry| {
        Pipeline::with_registry(config, registry).map(drop).unwrap_err().to_string()
    };
    let error = refused(&wrong, &registry());
    assert!(error.contains("likelihood: unknown field `scal`, expected `text` or `scale`"), "{error}");
    let error = refused(&spelled_out, &Registry::builtin());
    assert!(error.contains("unknown kind `likelihood`, expected one of `salt`"), "{error}");
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    let batch = peer_batch();
    let has = config(r#"{"refinements": [{"kind": "has", "decomposer": "external"}]}"#);
    let pipeline = Pipeline::from_config(&has).unwrap();
    let error = pipeline.supply(&batch, &mut Recorded::default()).unwrap_err().to_string();
    assert!(error.contains("the supplied credits do not fit the batch: group 0"), "{error}");
    let one = config(r#"{"refinements": [{"kind": "likelihood"}]}"#);
    let pipeline = Pipeline::with_registry(&one, &registry()).unwrap();
    let error = pipeline.supply(&batch, &mut Recorded(Vec::new(), 1)).unwrap_err().to_string();
    assert!(error.contains("5 texts or responses, and 4 scores"), "{error}");
    let ppo = Pipeline::from_config(&config(r#"{"estimator": {"kind": "ppo"}}"#)).unwrap();
    assert!(ppo.required_inputs().values && !ppo.compares_groups() && ppo.works_on_tokens());
    assert_eq!(
        ppo.supply(&batch, &mut Recorded::default()).unwrap().values,
        Some(PerToken::filled(&batch, 0.0))
    );
    assert_eq!(
        Pipeline::from_config(&CreditConfig::default())
            .unwrap()
            .supply(&batch, &mut Recorded::default())
            .unwrap(),
        ModelInputs::default()
    );
}

#[test]
fn draws_depend_on_seed_step_stage_and_coordinate() {
    let batch = Batch::default();
    let inputs = CreditInputs::new(&batch);
    let draw = |seed, step, coordinate| inputs.at(seed, step).rng(coordinate).bits();
    assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
    for other in [draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)] {
        assert_ne!(draw(1, 2, 3), other);
    }
    let turn = |entropy: f32| Turn { entropies: vec![entropy], response_ids: vec![0], ..Turn::default() };
    let turns = (0..8_u8).map(|index| Turn { reward: f64::from(index), ..turn(f32::from(index)) });
    let members = turns.map(|turn| Trajectory::new(Task::new("t", "k", "g"), vec![turn]));
    let batch = Batch { groups: vec![Group { trajectories: members.collect() }] };
    let aem = |mode| RefinementConfig::Aem(AemConfig { mode, ..AemConfig::default() });
    let alphas = |refinements: Vec<RefinementConfig>, stage: usize| -> Vec<f64> {
        let config = CreditConfig { refinements, ..CreditConfig::default() };
        let report =
            Pipeline::from_config(&config).unwrap().report(&CreditInputs::new(&batch), true).unwrap();
        report.explanations.values().map(|stages| stages[stage].facts.get("alpha").unwrap()).collect()
    };
    let twice = vec![aem(AemMode::Shuffle), aem(AemMode::Shuffle)];
    assert_ne!(alphas(twice.clone(), 1), alphas(twice.clone(), 2));
    assert_eq!(alphas(twice, 1), alphas(vec![aem(AemMode::Shuffle)], 1));
}

struct Forgetful;

impl Estimator for Forgetful {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        _: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        let first = Batch { groups: inputs.batch.groups[..1].to_vec() };
        Ok(PerTurn::filled(&first, 0.0))
    }
}

#[test]
fn a_stage_that_gives_a_table_of_another_shape_is_named_and_does_not_panic() {
    let group =
        || Group { trajectories: vec![Trajectory::new(Task::new("t", "k", "g"), vec![Turn::default()])] };
    let batch = Batch { groups: vec![group(), group()] };
    let pipeline =
        Pipeline::new(Box::new(Forgetful), vec![Box::new(Aem::new(AemConfig::default()).unwrap())]);
    let error = pipeline.run(&batch).unwrap_err();
    assert!(matches!(error, CreditError::Shape { what: "advantages", .. }), "{error}");
}

/// An estimator with token-level advantages, `short` too few per trajectory.
struct OfTokens {
    short: usize,
}

impl Estimator for OfTokens {
    fn name(&self) -> &'static str {
        "of-tokens"
    }

    fn advantages(
        &self,
        inputs: &CreditInputs<'_>,
        _: &mut Explanation,
    ) -> Result<PerTurn<f64>, CreditError> {
        Ok(PerTurn::filled(inputs.batch, 1.0))
    }

    fn token_advantages(&self, inputs: &CreditInputs<'_>) -> Result<Option<TokenAdvantages>, CreditError> {
        let rows = |group: &Group| {
            let tokens =
                |member: &Trajectory| member.turns.iter().map(|turn| turn.response_ids.len()).sum::<usize>();
            group.trajectories.iter().map(|member| vec![1.0; tokens(member) - self.short]).collect()
        };
        let table = || inputs.batch.groups.iter().map(rows).collect();
        Ok(Some(TokenAdvantages { advantages: table(), returns: table() }))
    }
}

struct Broken;

impl Refinement for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn refine(
        &self,
        _: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        _: &mut Explanation,
    ) -> Result<(), CreditError> {
        advantages.values_mut().for_each(|advantage| *advantage = f64::NAN);
        Ok(())
    }
}

#[test]
fn wrong_tokens_are_refused_before_a_refinement_and_what_is_no_number_names_its_stage() {
    let turn = Turn { response_ids: vec![0, 1], entropies: vec![0.5, 0.5], ..Turn::default() };
    let batch = Batch {
        groups: vec![Group { trajectories: vec![Trajectory::new(Task::new("t", "k", "g"), vec![turn])] }],
    };
    let aem = || -> Vec<Box<dyn Refinement>> { vec![Box::new(Aem::new(AemConfig::default()).unwrap())] };
    Pipeline::new(Box::new(OfTokens { short: 0 }), aem()).run(&batch).unwrap();
    let error = Pipeline::new(Box::new(OfTokens { short: 1 }), aem()).run(&batch).unwrap_err();
    assert!(matches!(error, CreditError::Shape { what: "advantages of tokens", .. }), "{error}");
    let error = Pipeline::new(Box::new(Forgetful), vec![Box::new(Broken)]).run(&batch).unwrap_err();
    assert!(matches!(error, CreditError::NotFinite { method: "broken", .. }), "{error}");
}
