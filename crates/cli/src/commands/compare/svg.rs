//! Learning curves as SVG: one panel a split, and one of the training rollouts.

use std::fmt::Write as _;

use turnwise_eval::compare::Comparison;
use turnwise_eval::compare::curves::{Curve, Point};

/// Width and height of a panel's axes, and the room around them.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 16.0;

/// The colours of Okabe and Ito, which the colour-blind can tell apart.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// All curves of a comparison.
pub(super) fn curves(comparison: &Comparison) -> String {
    let mut panels: Vec<(String, &[Curve])> = comparison
        .splits
        .iter()
        .map(|split| (format!("evaluation on {}", split.split), split.curves.as_slice()))
        .collect();
    if !comparison.training.is_empty() {
        let title = format!("training rollouts, mean of {} steps", comparison.smooth);
        panels.push((title, comparison.training.as_slice()));
    }
    let names: Vec<&str> = comparison
        .splits
        .first()
        .map(|split| split.methods.iter().map(|method| method.method.as_str()).collect())
        .unwrap_or_default();
    let step = LEFT + WIDTH + RIGHT;
    let width = step * panels.len().max(1) as f64;
    let legend = 20.0 * names.len() as f64;
    let height = TOP + HEIGHT + BOTTOM + legend;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, (title, curves)) in panels.iter().enumerate() {
        panel(&mut svg, step * index as f64, title, curves, &names);
    }
    for (index, name) in names.iter().enumerate() {
        let y = TOP + HEIGHT + BOTTOM + 20.0 * index as f64;
        let colour = COLOURS[index % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            LEFT + 24.0,
            LEFT + 32.0,
            y + 4.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

/// Axes and curves. Success is between 0 and 1; the axis ends at the next tenth above all bands.
fn panel(svg: &mut String, left: f64, title: &str, curves: &[Curve], names: &[&str]) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let high = |point: &Point| point.success.interval.map_or(point.success.value, |interval| interval.high);
    let top = (points().map(high).fold(0.1, f64::max) * 10.0).ceil() / 10.0;
    let last = points().map(|point| point.step).max().unwrap_or(0).max(1);
    let x = |step: u64| left + LEFT + WIDTH * step as f64 / last as f64;
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / top);
    let (begin, end) = (x(0), x(last));
    let _ = writeln!(
        svg,
        "<text x=\"{begin}\" y=\"{}\" font-weight=\"bold\">success (%), {}</text>",
        TOP - 20.0,
        escaped(title)
    );
    for tick in 0..=4 {
        let value = top * f64::from(tick) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{begin}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            begin - 6.0,
            at + 4.0,
            100.0 * value
        );
        let step = last * u64::from(tick as u32) / 4;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{step}</text>",
            x(step),
            TOP + HEIGHT + 18.0
        );
    }
    for curve in curves {
        let index = names.iter().position(|name| *name == curve.method).unwrap_or(0);
        let colour = COLOURS[index % COLOURS.len()];
        let with_band: Vec<&Point> =
            curve.points.iter().filter(|point| point.success.interval.is_some()).collect();
        if with_band.len() > 1 {
            let edge = |high: bool| {
                move |point: &&Point| {
                    let interval = point.success.interval?;
                    Some((point.step, if high { interval.high } else { interval.low }))
                }
            };
            let upper = with_band.iter().filter_map(edge(true));
            let lower = with_band.iter().rev().filter_map(edge(false));
            let corners: Vec<String> =
                upper.chain(lower).map(|(step, value)| format!("{:.1},{:.1}", x(step), y(value))).collect();
            let _ = writeln!(
                svg,
                "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.18\"/>",
                corners.join(" ")
            );
        }
        let line: Vec<String> = curve
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.step), y(point.success.value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        // Few points are shown as such: the line between them was not measured.
        if curve.points.len() <= 20 {
            for point in &curve.points {
                let (x, y) = (x(point.step), y(point.success.value));
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_eval::compare::Estimate;
    use turnwise_eval::statistics::Interval;

    #[test]
    fn curves_have_lines_and_bands() {
        let point = |step: u64, value: f64| Point {
            step,
            runs: 2,
            success: Estimate { value, interval: Some(Interval { low: value - 0.1, high: value + 0.1 }) },
        };
        let curve = Curve { method: "a<b".into(), points: vec![point(0, 0.2), point(10, 0.4)] };
        let mut svg = String::new();
        panel(&mut svg, 0.0, "x & y", &[curve], &["a<b"]);
        assert!(svg.contains("x &amp; y"));
        // The axis ends at 0.5: 0.2 lies at three fifths of the height from above, 0.4 at one fifth.
        let line = format!("points=\"52.0,{:.1} 432.0,{:.1}\" fill=\"none\"", TOP + 144.0, TOP + 48.0);
        assert!(svg.contains(&line), "{svg}");
        assert_eq!((svg.matches("<polygon").count(), svg.matches("<circle").count()), (1, 2));
    }
}
