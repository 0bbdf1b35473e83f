//! Descriptions of built-in stages and facts in a [`StageRecord`](crate::StageRecord), shown by
//! viewers.

/// Returns a built-in stage's update rule.
pub fn stage_rule(stage: &str) -> Option<&'static str> {
    Some(match stage {
        "grpo" => {
            "A = (score - mean) / std over the group (each trajectory once, or each turn, by `population`); without the division where normalize = \"mean\""
        }
        "rloo" => {
            "A = the score less the mean of the other scores of the group (of its trajectories, or of their turns, by `population`)"
        }
        "rtmc" => {
            "A = action_value - value: what rollouts of the group gained that took this action in this state, less what those gained that were in it"
        }
        "monte-carlo" => {
            "A = reward + gamma next_value - value, from the mean returns of fresh continuations; whitened over the batch's turns unless `whiten` is off"
        }
        "turn-ppo" => {
            "A = the generalised advantage over turns, which the critic's values at their first tokens give"
        }
        "turn-credit" => {
            "A <- A + level + shift: the trajectory's net progress against its group's, and the turn's share of it against the trajectory's mean"
        }
        "igpo" => {
            "A = the discounted sum of the standardized rewards from this turn on: what each turn adds to the probability of the reference answer, and at the last turn the outcome"
        }
        "privileged-gap" => {
            "A <- factor x A: above 1 for a turn of a success, and below 1 for one of a failure, of whose response a hint makes the policy surer"
        }
        "ppo" => {
            "A = the mean over the turn's tokens of their generalised advantages, which the critic's values give"
        }
        "gigpo" => {
            "A = episode + omega x step: the trajectory against its group, and the turn against all turns of the same state"
        }
        "hgpo" => {
            "A = the mean of level_1, level_2, ... (the turn against turns that share ever longer histories), level k with the weight (k + 1)^alpha"
        }
        "salt" => {
            "turns of one edge (state, action, next state) share the mean of their advantages; all others keep theirs"
        }
        "aem" => {
            "A <- alpha x A, alpha below 1 for responses more uncertain than others of the scope and above 1 for more certain ones (the reverse with `mode = \"reverse\"`); with a mask A <- factor x A"
        }
        "empg" => {
            "A <- scale x A + bonus - centre: uncertain turns count less, and turns that lead to a certain one get a bonus"
        }
        "has" => {
            "A <- alpha x trajectory + (1 - alpha) x turn: the outcome blended with the turn's own credit"
        }
        "outliers" => {
            "A stays; a turn whose normalised entropy is outside of [low, high] is an outlier, on which STAPO's selective term acts"
        }
        _ => return None,
    })
}

/// Describes a fact that a built-in stage records.
pub fn fact_meaning(stage: &str, fact: &str) -> Option<&'static str> {
    Some(match (stage, fact) {
        ("grpo" | "rloo" | "gigpo", "score") => {
            "the trajectory's return, less the penalty where this turn is invalid (or every invalid turn's, by `invalid_penalty_target`)"
        }
        ("grpo" | "rloo" | "gigpo", "mean") => {
            "mean of the returns of the group's trajectories (of its turns' scores with `population = \"turn\"`)"
        }
        ("grpo" | "gigpo", "std") => "standard deviation of the same",
        ("ppo", "mean_return") => "mean over the turn's tokens of the critic's targets",
        ("ppo" | "turn-ppo", "tokens") => "tokens of the response",
        ("turn-ppo", "return") => "the critic's target at every token of the turn",
        ("monte-carlo", "value") => "mean return of continuations from the state before the turn",
        ("monte-carlo", "next_value") => {
            "mean return of continuations from the state after the turn; 0 after the last one"
        }
        ("monte-carlo", "reward") => "the turn's reward, less the penalty where the turn is invalid",
        ("monte-carlo", "delta") => "reward + gamma next_value - value",
        ("rtmc", "value") => {
            "value of the state: mean return of the rollouts that were in it, with the prior"
        }
        ("rtmc", "action_value") => {
            "value of the action in the state: mean return of the rollouts that took it there, with the prior"
        }
        ("rtmc", "visits") => "rollouts of the group that were in the state",
        ("rtmc", "action_visits") => "those of them that took the action there",
        ("turn-credit", "credit") => "progress of this turn and of later ones that it is given",
        ("turn-credit", "level") => "net progress of the trajectory, less the group's mean",
        ("turn-credit", "shift") => "beta times the credit, less the trajectory's mean credit",
        ("igpo", "probability") => {
            "the policy's probability of the reference answer before the turn, the geometric mean over its tokens"
        }
        ("igpo", "reward") => "change of that probability by the turn; at the last turn the outcome",
        ("igpo", "standardized") => {
            "the reward standardized over the group (gains and outcomes together, or each among themselves)"
        }
        ("privileged-gap", "gap") => {
            "mean log-prob of the response's tokens with the hint, less that without it, in nats"
        }
        ("privileged-gap", "factor") => {
            "1 - lambda + lambda exp(gap), or exp(-gap) for a negative advantage, clipped around 1; 1 without a hint"
        }
        ("gigpo", "episode") => "the trajectory's advantage in its group",
        ("gigpo", "step") => {
            "the turn's advantage among the turns of its state; where it is the only one 0, or what `single_step_advantage` says"
        }
        ("gigpo" | "hgpo" | "rtmc", "step_return") => {
            "discounted return from this turn on, less the penalty where the turn is invalid"
        }
        ("gigpo" | "hgpo" | "rtmc" | "outliers", "anchor") => "number of the state within the group",
        ("gigpo" | "hgpo" | "outliers", "anchor_size") => "turns of the group in that state",
        ("gigpo", "anchor_mean") => "mean step return of these turns",
        ("gigpo", "anchor_std") => "standard deviation of their step returns",
        ("hgpo", "levels") => "levels that count for this turn",
        ("hgpo", "weight") => "sum of the weights of these levels",
        ("hgpo", "base") => "the trajectory's advantage in its group, as level 0",
        ("hgpo", level) if level.starts_with("level_") && level.ends_with("_size") => {
            "turns that share a history of this length"
        }
        ("hgpo", level) if level.starts_with("level_") => {
            "the turn's advantage among the turns that share a history of this length"
        }
        ("salt", "edge") => "number of the edge within the group",
        ("salt", "edge_size") => "turns of the group on that edge; one alone keeps its advantage",
        ("salt", "before") => "the advantage before it was shared",
        ("aem" | "outliers", "entropy") => "mean entropy of the response's tokens, in nats",
        ("aem", "alpha") => {
            "the coefficient: exp(-lambda h) over its mean in the scope, h the entropy scaled to [0, 1] there"
        }
        ("aem", "factor") => {
            "what the mask makes of the coefficient: 1 keeps the advantage, 0 masks it; absent where it keeps some tokens of the response and not others"
        }
        ("empg", "entropy_normalised") => "the entropy scaled to [0, 1] over the batch",
        ("empg", "scale") => "exp(-k h) over its mean in the batch",
        ("empg", "bonus") => "zeta exp(-k_future h) of the next turn; 0 for the last",
        ("empg", "centre") => "mean over all turns of the batch, which is taken off",
        ("has", "trajectory") => "the advantage of the trajectory, before",
        ("has", "credit") => "the turn's credit as the decomposer gave it",
        ("has", "turn") => {
            "that credit compared with those of the same index in the group: standardised, or less the mean of the others (`baseline`)"
        }
        ("has", "alpha") => "weight of the trajectory's advantage",
        ("outliers", "outlier") => "1 for an outlier",
        ("outliers", "entropy_normalised") => {
            "the entropy standardised among the turns of the same state (or as it is, by the settings)"
        }
        ("outliers", "low" | "high") => {
            "bound of the inliers over the batch: a quartile and lambda interquartile ranges beyond it"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use turnwise_core::{Batch, Group, Table, Task, Trajectory, Turn};

    use super::*;
    use crate::{CreditConfig, CreditInputs, ModelInputs, Pipeline};

    fn batch() -> Batch {
        let turn = |action: &str, reward: f64, entropy: f32| Turn {
            observation: "a room".into(),
            action: action.into(),
            valid: true,
            reward,
            progress: Some(reward),
            state_value: Some(0.5),
            response_ids: vec![1, 2],
            old_logprobs: vec![-0.5, -0.5],
            entropies: vec![entropy, 0.1],
            ..Turn::default()
        };
        let trajectory = |reward: f64| {
            let turns = vec![turn("look", 0.0, 0.5), turn("take", reward, 0.9)];
            let mut task = Task::new("t", "k", "g");
            task.metadata.insert(Task::ANSWER.into(), "yes".into());
            Trajectory { success: reward > 0.0, ..Trajectory::new(task, turns) }
        };
        Batch { groups: vec![Group { trajectories: vec![trajectory(1.0), trajectory(0.0)] }] }
    }

    #[test]
    fn every_stage_and_every_fact_that_it_records_has_words() {
        let configs = [
            json!({"estimator": {"kind": "hgpo", "base_group": "trajectory"}}),
            json!({"estimator": {"kind": "grpo"}, "refinements": [{"kind": "aem", "mode": "mask-positive"}]}),
            json!({"estimator": {"kind": "gigpo"}, "outliers": {}}),
            json!({"estimator": {"kind": "ppo"}, "refinements": [{"kind": "aem"}]}),
            json!({"estimator": {"kind": "rloo"}, "refinements": [{"kind": "salt"}]}),
            json!({"refinements": [{"kind": "empg"}, {"kind": "has"}]}),
            json!({"estimator": {"kind": "rtmc"}, "refinements": [{"kind": "turn-credit"}]}),
            json!({"estimator": {"kind": "turn-ppo"}}),
            json!({"estimator": {"kind": "monte-carlo"}}),
            json!({"refinements": [{"kind": "igpo"}]}),
            json!({"refinements": [{"kind": "privileged-gap"}]}),
        ];
        let batch = batch();
        let mut stages = std::collections::BTreeSet::new();
        for config in configs {
            let config: CreditConfig = serde_json::from_value(config).unwrap();
            let pipeline = Pipeline::from_config(&config).unwrap();
            let values = Table::from_rows(&batch, vec![vec![0.5; 4]; 2]);
            let asked = config.refinements.iter().map(|refinement| match refinement.kind() {
                "igpo" => vec![vec![-1.0]; 4],
                "privileged-gap" => vec![vec![-1.0, -1.0]; 2],
                _ => Vec::new(),
            });
            let scores = std::iter::once(Vec::new()).chain(asked).collect();
            let model_inputs = ModelInputs { values: Some(values), scores, ..ModelInputs::default() };
            let report =
                pipeline.report(&CreditInputs::new(&batch).with_model_inputs(&model_inputs), true).unwrap();
            for stage in report.explanations.values().flatten() {
                assert!(stage_rule(&stage.stage).is_some(), "{}", stage.stage);
                for (fact, _) in &stage.facts.0 {
                    assert!(fact_meaning(&stage.stage, fact).is_some(), "{}: {fact}", stage.stage);
                }
                stages.insert(stage.stage.to_string());
            }
        }
        assert_eq!(stages.len(), 16, "{stages:?}");
        assert_eq!((stage_rule("halve"), fact_meaning("grpo", "alpha")), (None, None));
    }
}
