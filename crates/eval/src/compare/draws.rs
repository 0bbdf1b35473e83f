//! Averages repeated evaluations of one run.

use std::collections::BTreeMap;

use crate::{Evaluation, KindResult, Outcomes, Rate};

/// Merges several evaluations (draws) into one: successes, trials and outcomes are pooled, and
/// fields that a comparison does not show come from the first draw.
///
/// # Errors
/// Fails if draws differ in panel, temperature, agent or number of trials, have equal seeds, or are
/// greedy and identical.
pub(super) fn averaged(draws: Vec<Evaluation>) -> Result<Evaluation, String> {
    for (index, second) in draws.iter().enumerate() {
        for first in &draws[..index] {
            let differing = [
                ("panels", first.panel != second.panel),
                ("temperatures", first.temperature != second.temperature),
                ("agents", first.agent != second.agent),
                ("numbers of trials", first.trials.len() != second.trials.len()),
            ];
            if let Some((what, _)) = differing.iter().find(|(_, differs)| *differs) {
                return Err(format!("two evaluations that are averaged have different {what}"));
            }
            let same = !first.outcomes.is_empty() && first.outcomes == second.outcomes;
            if first.temperature == 0.0 && same {
                return Err("two evaluations that are averaged are greedy and alike, so that they are one draw; evaluate with a \
                            --temperature above 0, or give one of them"
                    .into());
            }
            if first.seed == second.seed {
                return Err(format!(
                    "two evaluations that are averaged have the same seed {}, so that they are one draw; give `turnwise eval` another \
                     --seed",
                    first.seed
                ));
            }
        }
    }
    let sum = |rates: &[&Rate]| {
        Rate::new(rates.iter().map(|rate| rate.successes).sum(), rates.iter().map(|rate| rate.trials).sum())
    };
    let weighted = |parts: &[(f64, usize)]| {
        let trials: usize = parts.iter().map(|(_, trials)| trials).sum();
        parts.iter().map(|(value, of)| value * *of as f64).sum::<f64>() / trials.max(1) as f64
    };
    let mut kinds: BTreeMap<String, Vec<&KindResult>> = BTreeMap::new();
    for (kind, result) in draws.iter().flat_map(|draw| &draw.kinds) {
        kinds.entry(kind.clone()).or_default().push(result);
    }
    let of_kind = |results: Vec<&KindResult>| KindResult {
        success: sum(&results.iter().map(|result| &result.success).collect::<Vec<_>>()),
        mean_turns: weighted(
            &results.iter().map(|result| (result.mean_turns, result.success.trials)).collect::<Vec<_>>(),
        ),
    };
    let kinds = kinds.into_iter().map(|(kind, results)| (kind, of_kind(results))).collect();
    let success = sum(&draws.iter().map(|draw| &draw.success).collect::<Vec<_>>());
    let turns: Vec<(f64, usize)> = draws.iter().map(|draw| (draw.mean_turns, draw.success.trials)).collect();
    // Paired tests need the outcomes of all draws or none.
    let complete = draws.iter().all(|draw| !draw.outcomes.is_empty());
    let outcomes = draws.iter().filter(|_| complete).flat_map(|draw| draw.outcomes.iter().cloned()).collect();
    let failed = draws.iter().map(|draw| draw.failed).sum();
    let resampled = draws.iter().map(|draw| draw.resampled).sum();
    let overflowed = draws.iter().map(|draw| draw.overflowed).sum();
    let first = draws.into_iter().next().ok_or("there is no evaluation to average")?;
    Ok(Evaluation {
        success,
        kinds,
        mean_turns: weighted(&turns),
        failed,
        resampled,
        overflowed,
        outcomes: Outcomes(outcomes),
        ..first
    })
}
