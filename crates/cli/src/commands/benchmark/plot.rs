use turnwise_eval::benchmark::MethodScore;
use turnwise_eval::compare::Estimate;

use crate::plot::forest::{Forest, Mark, Row};
use crate::plot::{COLOURS, document};

/// Returns a forest plot of each method's corrected within-trajectory correlation with `A*`, best
/// first and the `a-star` baselines last. A method that gives all turns of a trajectory the same
/// advantage gets a hollow mark at 0.
pub(super) fn forest(title: &str, scores: &[MethodScore]) -> String {
    let about =
        "correlation with A* within trajectories, corrected for the noise of A*; 95 % over tasks".to_owned();
    document(title, &[about], &[of_scores(scores).draw()])
}

fn of_scores(scores: &[MethodScore]) -> Forest {
    let (mut methods, ladder): (Vec<&MethodScore>, Vec<&MethodScore>) =
        scores.iter().partition(|score| !is_ladder(score));
    let value = |score: &MethodScore| score.within_corrected.map_or(0.0, |estimate| estimate.value);
    methods.sort_by(|a, b| value(b).total_cmp(&value(a)));
    Forest {
        panels: vec![String::new()],
        rows: methods.into_iter().chain(ladder).map(row).collect(),
        row: 22.0,
        covers: (0.0, 100.0),
        limits: (-100.0, 100.0),
        label: |tick| format!("{:.1}", tick / 100.0),
        numbers: true,
        words: vec![(0.0, "no credit".into()), (100.0, "perfect credit".into())],
    }
}

fn is_ladder(score: &MethodScore) -> bool {
    score.name.starts_with("a-star")
}

fn row(score: &MethodScore) -> Row {
    let colour = if is_ladder(score) { COLOURS[1] } else { COLOURS[0] };
    let mark = match score.within_corrected {
        Some(estimate) => Mark { estimate, colour, hollow: false, text: format!("{:.2}", estimate.value) },
        None => Mark {
            estimate: Estimate { value: 0.0, interval: None },
            colour,
            hollow: true,
            text: "one per trajectory".into(),
        },
    };
    Row { name: score.name.clone(), marks: vec![Some(mark)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_eval::statistics::Interval;

    fn score(name: &str, value: Option<f64>) -> MethodScore {
        let estimate =
            |value: f64| Estimate { value, interval: Some(Interval { low: value - 0.1, high: value + 0.1 }) };
        MethodScore {
            name: name.to_owned(),
            pearson: None,
            pearson_corrected: None,
            spearman: None,
            spearman_corrected: None,
            within: None,
            within_corrected: value.map(estimate),
            within_spearman: None,
            within_spearman_corrected: None,
            signs: None,
            signed_turns: 0,
            slope: None,
            noise: None,
            errors: Vec::new(),
        }
    }

    #[test]
    fn a_mark_is_at_its_value_and_the_best_method_is_first() {
        let scores = [
            score("grpo", None),
            score("bad<", Some(-0.3)),
            score("good", Some(0.5)),
            score("a-star K=4", Some(0.8)),
        ];
        let svg = forest("a & b", &scores);
        assert!(svg.contains("a &amp; b") && svg.contains("bad&lt;") && svg.contains("perfect credit"));
        assert!(svg.contains(&format!("<circle cx=\"{:.1}\"", 94.0 + 460.0 * 1.0 / 1.5)), "{svg}");
        let place = |words: &str| svg.find(words).unwrap_or_else(|| panic!("{words}: {svg}"));
        let rows = [">good<", ">grpo<", ">bad&lt;<", ">a-star K=4<"].map(place);
        assert!(rows.is_sorted(), "{svg}");
        assert_eq!(svg.matches("fill=\"white\" stroke").count(), 1);
    }
}
