//! The scores of one data set as a plot: a mark per method, with its interval, from no credit to perfect credit.

use std::fmt::Write as _;

use turnwise_eval::benchmark::MethodScore;
use turnwise_eval::compare::Estimate;

use crate::commands::pages::html::escape;
use crate::commands::svg::{COLOURS, begin, ticks};

/// Height of a row, width of the axis, and the room around it.
const ROW: f64 = 22.0;
const WIDTH: f64 = 460.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;
const RIGHT: f64 = 96.0;
/// Width of a letter of a name.
const LETTER: f64 = 7.0;

/// Returns the plot of the corrected correlation with `A*` within trajectories. The best method is first; the estimates of `A*` from
/// a few continuations are last. A method with one advantage per trajectory has a hollow mark at 0.
pub(super) fn forest(title: &str, scores: &[MethodScore]) -> String {
    let (mut methods, ladder): (Vec<&MethodScore>, Vec<&MethodScore>) =
        scores.iter().partition(|score| !is_ladder(score));
    let value = |score: &MethodScore| score.within_corrected.map_or(0.0, |estimate| estimate.value);
    methods.sort_by(|a, b| value(b).total_cmp(&value(a)));
    let rows: Vec<&MethodScore> = methods.into_iter().chain(ladder).collect();
    let axis = Axis::of(&rows);
    let width = axis.left + WIDTH + RIGHT;
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = begin(width, bottom + BOTTOM);
    let _ = writeln!(
        svg,
        "<text x=\"12\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{}</text>\
         <text x=\"12\" y=\"40\" fill=\"#444\">correlation with A* within trajectories, corrected for the noise of A*; 95 % over tasks</text>",
        escape(title)
    );
    axis.draw(&mut svg, bottom);
    for (index, score) in rows.iter().enumerate() {
        row(&mut svg, &axis, TOP + ROW * (index as f64 + 0.5), score);
    }
    svg + "</svg>\n"
}

/// Returns true for an estimate of `A*` from a few continuations.
fn is_ladder(score: &MethodScore) -> bool {
    score.name.starts_with("a-star")
}

/// The axis, in hundredths: from the tick below every mark to perfect credit at least.
struct Axis {
    left: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn of(rows: &[&MethodScore]) -> Self {
        let ends = |estimate: Estimate| {
            let interval = estimate.interval.map_or([estimate.value; 2], |it| [it.low, it.high]);
            [interval[0], interval[1], estimate.value]
        };
        let ends = rows.iter().filter_map(|score| score.within_corrected).flat_map(ends);
        let low = ends.fold(0.0_f64, f64::min).max(-1.0);
        let longest = rows.iter().map(|score| score.name.chars().count()).max().unwrap_or(0);
        Self { left: 24.0 + LETTER * longest as f64, ticks: ticks(100.0 * low, 100.0) }
    }

    /// Returns the position of a value; values outside the axis are drawn at its end.
    fn x(&self, value: f64) -> f64 {
        let (low, high) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        self.left + WIDTH * ((100.0 * value).clamp(low, high) - low) / (high - low)
    }

    fn draw(&self, svg: &mut String, bottom: f64) {
        for tick in &self.ticks {
            let x = self.x(tick / 100.0);
            let stroke = if *tick == 0.0 { "#888888" } else { "#dddddd" };
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.1}</text>",
                bottom + 18.0,
                tick / 100.0
            );
        }
        for (value, words) in [(0.0, "no credit"), (1.0, "perfect credit")] {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{words}</text>",
                self.x(value),
                bottom + 36.0
            );
        }
    }
}

/// Draws one method: its name, its interval, its mark and its number.
fn row(svg: &mut String, axis: &Axis, y: f64, score: &MethodScore) {
    let colour = if is_ladder(score) { COLOURS[1] } else { COLOURS[0] };
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        axis.left - 10.0,
        y + 4.0,
        escape(&score.name)
    );
    let number = if let Some(Estimate { value, interval }) = score.within_corrected {
        if let Some(interval) = interval {
            let _ = write!(
                svg,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                axis.x(interval.low),
                axis.x(interval.high)
            );
        }
        let _ =
            write!(svg, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>", axis.x(value));
        format!("{value:.2}")
    } else {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"white\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            axis.x(0.0)
        );
        "one per trajectory".to_owned()
    };
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444\">{number}</text>",
        axis.left + WIDTH + 8.0,
        y + 4.0
    );
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
        // Ten letters; the axis goes from -0.4 to 1.0 in steps of 0.5: from -0.5.
        let axis = Axis::of(&scores.iter().collect::<Vec<_>>());
        assert_eq!((axis.left, axis.ticks.as_slice()), (94.0, &[-50.0, 0.0, 50.0, 100.0][..]));
        assert!(svg.contains(&format!("<circle cx=\"{:.1}\"", 94.0 + WIDTH * 1.0 / 1.5)), "{svg}");
        let place = |words: &str| svg.find(words).unwrap_or_else(|| panic!("{words}: {svg}"));
        let rows = [">good<", ">grpo<", ">bad&lt;<", ">a-star K=4<"].map(place);
        assert!(rows.is_sorted(), "{svg}");
        // GRPO has no number and a hollow mark; a mark beyond the axis is at its end.
        assert_eq!(svg.matches("fill=\"white\" stroke").count(), 1);
        assert!((axis.x(1.4) - axis.x(1.0)).abs() < 1e-9 && axis.x(0.2) < axis.x(0.3));
    }
}
