//! Small charts: metrics over steps, sparklines, rates with intervals. The page's stylesheet sets
//! the colours.

use std::fmt::Write as _;

use super::figure::figure;
use super::{extent, share};
use crate::commands::pages::html::escape;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 96.0;
/// Margins for axis labels, of which `-0.0001234` is the longest.
const LEFT: f64 = 66.0;
const BOTTOM: f64 = 18.0;
const MARGIN: f64 = 6.0;

const MOST: usize = 300;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) step: u64,
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

impl Point {
    pub(crate) fn new(step: u64, value: f64) -> Self {
        Self { step, value, interval: None }
    }
}

fn smoothed(points: &[Point], window: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let values = points.iter().enumerate().map(|(index, point)| {
        sum += point.value;
        if let Some(gone) = index.checked_sub(window) {
            sum -= points[gone].value;
        }
        sum / window.min(index + 1) as f64
    });
    values.collect()
}

/// Returns at most [`MOST`] evenly spaced indices, including the last.
fn drawn(count: usize) -> Vec<usize> {
    if count <= MOST {
        return (0..count).collect();
    }
    (1..=MOST).map(|index| index * count / MOST - 1).collect()
}

/// Draws a small chart of a metric with its minimum, maximum and last value; without points, the
/// chart is empty. NaN and infinite values are skipped, and hovering over a point shows its value.
///
/// If `window` is above 1, points are pale and a moving average is drawn over them. `dots` marks
/// each point, for metrics that exist only at some steps.
pub(crate) fn chart(title: &str, points: &[Point], dots: bool, window: usize) -> String {
    let points: Vec<Point> = points.iter().copied().filter(|point| point.value.is_finite()).collect();
    let ends = points.iter().flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.value, point.value));
        [low, high]
    });
    let (Some(first), Some(last), Some((low, high))) = (points.first(), points.last(), extent(ends)) else {
        return String::new();
    };
    let base = HEIGHT - BOTTOM;
    let steps = (first.step as f64, last.step as f64);
    let x = |step: u64| LEFT + share(step as f64, steps) * (WIDTH - LEFT - MARGIN);
    let y = |value: f64| MARGIN + (1.0 - share(value, (low, high))) * (base - 2.0 * MARGIN);
    let shown = drawn(points.len());
    let polyline = |class: &str, values: &dyn Fn(usize) -> f64| {
        let mut line = format!("<polyline{class} points=\"");
        for &index in &shown {
            let _ = write!(line, "{:.1},{:.1} ", x(points[index].step), y(values(index)));
        }
        line.truncate(line.trim_end().len());
        line + "\"/>"
    };
    let own = |index: usize| points[index].value;
    let means = if window > 1 { smoothed(&points, window) } else { Vec::new() };
    let lines = if means.is_empty() {
        polyline("", &own)
    } else {
        polyline(" class=\"raw\"", &own) + &polyline("", &|index| means[index])
    };
    let end = means.last().copied().unwrap_or(last.value);
    format!(
        "<figure><figcaption>{title} <b>{end}</b></figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}: {low} to {high}, at the end {end}\">\
         <line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{base}\" y2=\"{base}\"/>{numbers}\
         <text x=\"{LEFT}\" y=\"{below}\">{}</text><text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">{}</text>\
         {lines}{marks}</svg></figure>",
        first.step,
        last.step,
        title = escape(title),
        low = figure(low),
        high = figure(high),
        end = figure(end),
        below = HEIGHT - 5.0,
        numbers = numbers(low, high, base),
        marks = marks(&points, &shown, &means, dots, &x, &y),
    )
}

fn numbers(low: f64, high: f64, base: f64) -> String {
    let number = |value: f64, y: f64| {
        format!("<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>", LEFT - 4.0, figure(value))
    };
    let mut numbers = number(high, MARGIN + 8.0);
    if low < high {
        numbers.push_str(&number(low, base - 2.0));
    }
    numbers
}

fn marks(
    points: &[Point],
    shown: &[usize],
    means: &[f64],
    dots: bool,
    x: &dyn Fn(u64) -> f64,
    y: &dyn Fn(f64) -> f64,
) -> String {
    let mut marks = String::new();
    let wide = (WIDTH - LEFT - MARGIN) / (shown.len().max(2) - 1) as f64;
    for &index in shown {
        let point = &points[index];
        let (at, height) = (x(point.step), y(point.value));
        let class = if dots { "at dot" } else { "at" };
        let _ = write!(marks, "<g class=\"{class}\"><title>step {}: {}", point.step, figure(point.value));
        if let Some((low, high)) = point.interval {
            let _ = write!(marks, " [{}, {}]", figure(low), figure(high));
        }
        if let Some(mean) = means.get(index) {
            let _ = write!(marks, ", smoothed {}", figure(*mean));
        }
        let _ = write!(
            marks,
            "</title><rect x=\"{:.1}\" y=\"0\" width=\"{wide:.1}\" height=\"{HEIGHT}\"/>",
            at - wide / 2.0
        );
        if let Some((low, high)) = point.interval {
            let _ = write!(marks, "<path d=\"M{at:.1} {:.1}V{:.1}\"/>", y(low), y(high));
        }
        let _ = write!(marks, "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\"/></g>");
    }
    marks
}

/// Draws a word-sized sparkline of the metric named `about`; it is empty for fewer than two values.
/// If `range` is absent, the vertical range is that of the values.
pub(crate) fn spark(values: &[f64], range: Option<(f64, f64)>, about: &str) -> String {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let Some(range) = range.or_else(|| extent(values.iter().copied())).filter(|_| values.len() > 1) else {
        return String::new();
    };
    let shown = drawn(values.len());
    let mut points = String::new();
    for (place, &index) in shown.iter().enumerate() {
        let x = 1.0 + 98.0 * place as f64 / (shown.len() - 1) as f64;
        let y = 21.0 - 18.0 * share(values[index], range).clamp(0.0, 1.0);
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let about = format!("{about}: {} to {}", figure(values[0]), figure(values[values.len() - 1]));
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 100 24\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{about}\"><title>{about}</title>\
         <polyline points=\"{}\"/></svg>",
        points.trim_end(),
        about = escape(&about)
    )
}

pub(crate) fn rate(value: f64, (low, high): (f64, f64)) -> String {
    let x = |value: f64| 2.0 + 156.0 * value.clamp(0.0, 1.0);
    let about = format!("{} [{}, {}]", figure(value), figure(low), figure(high));
    format!(
        "<svg class=\"rate\" viewBox=\"0 0 160 16\" role=\"img\" aria-label=\"{about}\"><title>{about}</title>\
         <path class=\"axis\" d=\"M2 8h156M2 4v8M80 6v4M158 4v8\"/><path d=\"M{:.1} 8H{:.1}\"/><circle cx=\"{:.1}\" cy=\"8\" r=\"4\"/></svg>",
        x(low),
        x(high),
        x(value)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        (1..).zip(values).map(|(step, &value)| Point::new(step, value)).collect()
    }

    #[test]
    fn a_chart_has_its_extremes_and_its_last_value() {
        let svg = chart("train/<rate>", &points(&[0.25, f64::NAN, 0.75, 0.5]), true, 1);
        assert!(svg.contains("train/&lt;rate&gt; <b>0.5</b>"), "{svg}");
        assert!(
            svg.contains(">0.75</text>") && svg.contains(">0.25</text>") && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(svg.contains("aria-label=\"train/&lt;rate&gt;: 0.25 to 0.75, at the end 0.5\""), "{svg}");
        assert_eq!(svg.matches("<circle cx").count(), 3);
        assert!(svg.contains("<title>step 3: 0.75</title>"));
        assert_eq!(chart("x", &points(&[f64::NAN]), true, 1), "");
        let flat = chart("x", &points(&[2.0, 2.0]), false, 1);
        assert_eq!(flat.matches("text-anchor=\"end\">2<").count(), 2, "{flat}");
    }

    #[test]
    fn smoothing_is_the_mean_of_the_last_points() {
        assert_eq!(smoothed(&points(&[1.0, 2.0, 3.0, 7.0]), 2), [1.0, 1.5, 2.5, 5.0]);
        let svg = chart("x", &points(&[0.0, 1.0]), false, 10);
        assert!(svg.contains("class=\"raw\"") && svg.contains("step 2: 1, smoothed 0.5"), "{svg}");
    }

    #[test]
    fn a_long_curve_is_thinned_and_keeps_its_end() {
        let long: Vec<f64> = (0..100_000).map(f64::from).collect();
        let svg = chart("x", &points(&long), false, 1);
        assert!(svg.matches("<title>").count() == MOST && svg.contains("step 100000: 99999"));
        assert!(svg.len() < 80_000, "{}", svg.len());
        assert!(spark(&long, None, "y").len() < 8_000);
    }

    #[test]
    fn intervals_are_inside_the_chart() {
        let point = Point { step: 1, value: 0.5, interval: Some((0.25, 1.0)) };
        let svg = chart("x", &[point], true, 1);
        assert!(svg.contains("step 1: 0.5 [0.25, 1]") && svg.contains(">0.25</text>"), "{svg}");
        assert!(rate(0.5, (0.25, 1.0)).contains("M41.0 8H158.0"), "{}", rate(0.5, (0.25, 1.0)));
    }
}
