//! Parses scores and converts them to credits.

const BEST: f64 = 10.0;

/// Parses a JSON list of `turns` numbers from 0 to 10.
pub(super) fn parse(answer: &str, turns: usize) -> Result<Vec<f64>, String> {
    let scores: Vec<f64> = serde_json::from_str(answer.trim())
        .map_err(|error| format!("the answer is not a JSON list of numbers: {error}"))?;
    if scores.len() != turns {
        return Err(format!("the answer has {} scores for {turns} turns", scores.len()));
    }
    match scores.iter().find(|score| !(0.0..=BEST).contains(*score)) {
        Some(score) => Err(format!("the answer has a score of {score}; scores go from 0 to 10")),
        None => Ok(scores),
    }
}

/// Returns credits that sum to the return `R`: `s_t R / sum s`, or `(10 - s_t) R / sum (10 - s)`
/// for a negative `R`, for which the paper has no formula. A turn with a higher score always gets
/// more credit. Returns `None` if the denominator is about 0.
pub(super) fn rescale(scores: &[f64], ret: f64) -> Option<Vec<f64>> {
    let share = |score: &f64| if ret < 0.0 { BEST - score } else { *score };
    let sum: f64 = scores.iter().map(share).sum();
    (sum > 1e-6).then(|| scores.iter().map(|score| share(score) / sum * ret).collect())
}

pub(super) fn uniform(turns: usize, ret: f64) -> Vec<f64> {
    vec![ret / turns as f64; turns]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_list_of_the_right_length_is_an_answer() {
        assert_eq!(parse(" [0, 10, 2.5]\n", 3), Ok(vec![0.0, 10.0, 2.5]));
        for answer in [
            "",
            "[1, 2]",
            "[1, 2, 3, 4]",
            "[1, 2, 11]",
            "[1, 2, -0.1]",
            "[1, 2, null]",
            "[1, 2, \"3\"]",
            "[1, 2, NaN]",
            "[1, 2, 1e999]",
            "```json\n[1, 2, 3]\n```",
            "[1, 2, 3] because",
            "{\"scores\": [1, 2, 3]}",
            "[[1, 2, 3]]",
        ] {
            assert!(parse(answer, 3).is_err(), "{answer}");
        }
    }

    #[test]
    fn the_best_turn_of_a_failure_has_the_least_blame() {
        assert_eq!(rescale(&[10.0, 0.0], -1.5), Some(vec![-0.0, -1.5]));
        assert_eq!(rescale(&[10.0, 0.0], 1.5), Some(vec![1.5, 0.0]));
        assert_eq!((rescale(&[10.0, 10.0], -1.0), rescale(&[0.0, 0.0], 1.0)), (None, None));
    }

    proptest! {
        #[test]
        fn credits_sum_to_the_return(
            scores in prop::collection::vec(0.0f64..=10.0, 1..60),
            ret in -100.0f64..100.0,
        ) {
            let credits = rescale(&scores, ret).unwrap_or_else(|| uniform(scores.len(), ret));
            prop_assert!((credits.iter().sum::<f64>() - ret).abs() < 1e-9);
            for (one, other) in (0..scores.len()).zip(1..scores.len()) {
                prop_assert!((scores[one] - scores[other]) * (credits[one] - credits[other]) >= 0.0);
            }
        }

        #[test]
        fn no_answer_is_too_strange(answer in ".*", turns in 1usize..5) {
            if let Ok(scores) = parse(&answer, turns) {
                prop_assert!(scores.len() == turns && scores.iter().all(|s| (0.0..=10.0).contains(s)));
            }
        }
    }
}
