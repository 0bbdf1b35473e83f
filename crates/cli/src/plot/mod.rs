//! SVG plots, without a plotting library (see ADR 39).

pub(crate) mod chart;
#[cfg(test)]
mod evidence;
pub(crate) mod figure;
pub(crate) mod forest;
pub(crate) mod lines;
pub(crate) mod scatter;

use std::fmt::Write as _;

use crate::commands::pages::html::escape;

const MOST_INTERVALS: f64 = 6.0;

const TITLE: f64 = 30.0;
const LINE: f64 = 18.0;

const LETTER: f64 = 7.0;

/// Okabe and Ito's colour-blind safe palette.
pub(crate) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Colour of differences whose interval contains 0.
pub(crate) const GREY: &str = "#888888";

pub(crate) struct Piece {
    pub(crate) body: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

pub(crate) fn document(title: &str, lines: &[String], pieces: &[Piece]) -> String {
    let text = lines.iter().map(|line| 24.0 + 0.85 * LETTER * line.chars().count() as f64);
    let width = pieces.iter().map(|piece| piece.width).chain(text).fold(0.0_f64, f64::max);
    let mut top = TITLE + LINE * lines.len() as f64;
    let height = top + pieces.iter().map(|piece| piece.height).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escape(title)
    );
    for (index, line) in lines.iter().enumerate() {
        let y = TITLE + LINE * (index as f64 + 0.6);
        let _ = writeln!(svg, "<text x=\"12\" y=\"{y:.1}\" fill=\"#444\">{}</text>", escape(line));
    }
    for piece in pieces {
        let _ = writeln!(svg, "<g transform=\"translate(0 {top:.1})\">\n{}</g>", piece.body);
        top += piece.height;
    }
    svg + "</svg>\n"
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().fold(None, |extent: Option<(f64, f64)>, value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    if high > low { (value - low) / (high - low) } else { 0.5 }
}

/// Returns ticks that cover a range, spaced by 1, 2, 5, 10, 20, 50, ...
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = (0..).map(|power| 10_f64.powi(power));
    let steps = powers.flat_map(|power| [power, 2.0 * power, 5.0 * power]);
    let bounds = |step: f64| ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let fits = |step: &f64| {
        let (first, last) = bounds(*step);
        last - first <= MOST_INTERVALS
    };
    let Some(step) = steps.take(60).find(fits) else { return vec![low, high] };
    let (first, last) = bounds(step);
    let count = (last - first).max(1.0) as u32;
    (0..=count).map(|index| (first + f64::from(index)) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_an_extent_and_a_share_of_it() {
        assert_eq!(extent([2.0, -1.0, f64::NAN, 0.5]), Some((-1.0, 2.0)));
        assert_eq!(extent([]), None);
        assert_eq!((share(0.5, (-1.0, 2.0)), share(3.0, (3.0, 3.0))), (0.5, 0.5));
    }

    #[test]
    fn ticks_are_round_and_around_the_range() {
        assert_eq!(ticks(51.3, 83.9), [50.0, 60.0, 70.0, 80.0, 90.0]);
        assert_eq!(ticks(0.0, 90.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(ticks(0.0, 3.0), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(ticks(40.0, 40.0), [40.0, 41.0]);
    }

    #[test]
    fn plots_are_below_each_other_in_a_document_that_holds_them() {
        let piece = |height: f64| Piece { body: String::new(), width: 300.0, height };
        let svg = document("a < b", &["x & y".into()], &[piece(100.0), piece(50.0)]);
        assert!(svg.contains("viewBox=\"0 0 300 198\"") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("translate(0 48.0)") && svg.contains("translate(0 148.0)"), "{svg}");
    }
}
