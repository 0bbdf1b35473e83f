//! Curves as SVG: a metric over the steps of a run.

use std::fmt::Write as _;

use crate::commands::pages::html::escape;
use crate::plot::figure::figure;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 90.0;
/// Room at the left and below for the numbers: `-0.0001234` is the longest.
const LEFT: f64 = 66.0;
const BOTTOM: f64 = 18.0;
const MARGIN: f64 = 6.0;

/// Maximum number of points that say their value under the pointer; more would make the page heavy.
const TITLES: usize = 400;

/// Returns a small chart of `(step, value)` points with its extremes and its last value; values that are
/// not finite are left out. Empty without points.
///
/// `dots` marks single points, for numbers that few steps have.
pub(super) fn chart(title: &str, points: &[(u64, f64)], dots: bool) -> String {
    let points: Vec<(f64, f64)> = points
        .iter()
        .filter(|(_, value)| value.is_finite())
        .map(|&(step, value)| (step as f64, value))
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let low = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    let scale = |value: f64, low: f64, high: f64| if high > low { (value - low) / (high - low) } else { 0.5 };
    let place = |&(step, value): &(f64, f64)| {
        let x = LEFT + scale(step, first.0, last.0) * (WIDTH - LEFT - MARGIN);
        let y = MARGIN + (1.0 - scale(value, low, high)) * (HEIGHT - BOTTOM - 2.0 * MARGIN);
        (x, y)
    };
    let mut line = String::new();
    let mut marks = String::new();
    for point in &points {
        let (x, y) = place(point);
        let _ = write!(line, "{x:.1},{y:.1} ");
        if dots || points.len() <= TITLES {
            let class = if dots { "" } else { " class=\"hidden\"" };
            let _ = write!(
                marks,
                "<circle{class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {}</title></circle>",
                point.0,
                figure(point.1)
            );
        }
    }
    let base = HEIGHT - BOTTOM;
    let mut numbers = format!(
        "<text x=\"{x}\" y=\"{top}\" text-anchor=\"end\">{}</text>",
        figure(high),
        x = LEFT - 4.0,
        top = MARGIN + 8.0
    );
    if low < high {
        let _ = write!(
            numbers,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 4.0,
            base - 2.0,
            figure(low)
        );
    }
    format!(
        "<figure><figcaption>{title} <b>{end}</b></figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}: {low} to {high}, at the end {end}\">\
         <line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{base}\" y2=\"{base}\"/>{numbers}\
         <text x=\"{LEFT}\" y=\"{below}\">{}</text><text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">{}</text>\
         <polyline points=\"{}\"/>{marks}</svg></figure>",
        first.0,
        last.0,
        line.trim_end(),
        title = escape(title),
        low = figure(low),
        high = figure(high),
        end = figure(last.1),
        below = HEIGHT - 5.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_and_the_last_value_are_written() {
        let svg = chart("train/<rate>", &[(1, 0.25), (2, f64::NAN), (3, 0.75), (4, 0.5)], true);
        assert!(svg.contains("train/&lt;rate&gt; <b>0.5</b>"), "{svg}");
        assert!(
            svg.contains(">0.75</text>") && svg.contains(">0.25</text>") && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(svg.contains("aria-label=\"train/&lt;rate&gt;: 0.25 to 0.75, at the end 0.5\""), "{svg}");
        assert_eq!(svg.matches("<circle cx").count(), 3);
        assert!(svg.contains("<title>3: 0.75</title>"));
        assert_eq!(chart("x", &[(1, f64::NAN)], true), "");
        // A curve that does not move has one number and lies in the middle.
        let flat = chart("x", &[(1, 2.0), (2, 2.0)], false);
        assert_eq!(flat.matches("text-anchor=\"end\">2<").count(), 2, "{flat}");
    }
}
