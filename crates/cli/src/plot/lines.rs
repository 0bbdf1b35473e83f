use std::fmt::Write as _;

use turnwise_eval::compare::curves::{Curve, Point};

use super::{COLOURS, LETTER, Piece, colour, extent, ticks};
use crate::commands::pages::html::escape;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 64.0;
const RIGHT: f64 = 20.0;

const ENTRY: f64 = 20.0;
const BESIDE: f64 = 48.0;

/// If all curves stay above this fraction of the maximum, the success axis is truncated and marked;
/// otherwise it starts at 0.
const CUT: f64 = 0.6;

const DASHES: [&str; 4] = ["none", "6 3", "2 3", "9 3 2 3"];

fn stroke(index: usize) -> String {
    let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
    format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"", colour(index))
}

/// Draws success curves; `names` lists the methods in the order of their colours.
pub(crate) fn lines(panels: &[(String, &[Curve])], names: &[&str]) -> Piece {
    let step = LEFT + WIDTH + RIGHT;
    let width = step * panels.len().max(1) as f64;
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let entry = BESIDE + LETTER * longest as f64;
    let columns = ((width - LEFT) / entry).floor().max(1.0) as usize;
    let legend = ENTRY * names.len().div_ceil(columns) as f64;
    let mut body = String::new();
    for (index, (title, curves)) in panels.iter().enumerate() {
        panel(&mut body, step * index as f64, title, curves, names);
    }
    for (index, name) in names.iter().enumerate() {
        let x = LEFT + entry * (index % columns) as f64;
        let y = TOP + HEIGHT + BOTTOM + ENTRY * (index / columns) as f64;
        let _ = writeln!(
            body,
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {}/><text x=\"{}\" y=\"{}\">{}</text>",
            x + 24.0,
            stroke(index),
            x + 32.0,
            y + 4.0,
            escape(name)
        );
    }
    Piece { body, width, height: TOP + HEIGHT + BOTTOM + legend }
}

fn panel(svg: &mut String, left: f64, title: &str, curves: &[Curve], names: &[&str]) {
    let axes = Axes::of(left, curves);
    axes.draw(svg, title);
    for drawn in curves {
        let index = names.iter().position(|name| *name == drawn.method).unwrap_or(0);
        curve(svg, &axes, drawn, index);
    }
}

struct Axes {
    left: f64,
    percents: Vec<f64>,
    last: u64,
}

impl Axes {
    fn of(left: f64, curves: &[Curve]) -> Self {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let bounds =
            |point: &Point| point.success.interval.map_or([point.success.value; 2], |it| [it.low, it.high]);
        let (low, high) = extent(points().flat_map(bounds)).unwrap_or((0.0, 1.0));
        let low = if low > CUT * high { low.max(0.0) } else { 0.0 };
        let percents = ticks(100.0 * low, 100.0 * high.min(1.0));
        let last = points().map(|point| point.step).max().unwrap_or(0).max(1);
        Self { left, percents, last }
    }

    fn x(&self, step: f64) -> f64 {
        self.left + LEFT + WIDTH * step / self.last as f64
    }

    fn y(&self, success: f64) -> f64 {
        let (bottom, top) = (self.percents[0] / 100.0, self.percents[self.percents.len() - 1] / 100.0);
        TOP + HEIGHT * (1.0 - (success - bottom) / (top - bottom))
    }

    fn is_cut(&self) -> bool {
        self.percents[0] > 0.0
    }

    fn draw(&self, svg: &mut String, title: &str) {
        let last = self.last as f64;
        let (begin, end) = (self.x(0.0), self.x(last));
        let _ = writeln!(
            svg,
            "<text x=\"{begin}\" y=\"{}\" font-weight=\"bold\">success (%), {}</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>",
            TOP - 16.0,
            escape(title),
            f64::midpoint(begin, end),
            TOP + HEIGHT + 36.0
        );
        for percent in &self.percents {
            let at = self.y(percent / 100.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{begin}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent:.0}</text>",
                begin - 6.0,
                at + 4.0
            );
        }
        if self.is_cut() {
            let bottom = TOP + HEIGHT;
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {:.1}l10 -6M{:.1} {:.1}l10 -6\" stroke=\"#444\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444\">axis cut below {:.0} %</text>",
                begin - 5.0,
                bottom - 2.0,
                begin - 5.0,
                bottom - 7.0,
                begin + 10.0,
                bottom - 5.0,
                self.percents[0]
            );
        }
        for step in ticks(0.0, last).into_iter().filter(|&step| step <= last) {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{step:.0}</text>",
                self.x(step),
                TOP + HEIGHT + 18.0
            );
        }
    }
}

/// Draws one method's line and band. The points of curves with at most 20 points are marked,
/// because nothing between them was measured.
fn curve(svg: &mut String, axes: &Axes, curve: &Curve, index: usize) {
    let colour = colour(index);
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
        let corners: Vec<String> = upper
            .chain(lower)
            .map(|(step, value)| format!("{:.1},{:.1}", axes.x(step as f64), axes.y(value)))
            .collect();
        let _ = writeln!(
            svg,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.12\"/>",
            corners.join(" ")
        );
    }
    let places: Vec<(f64, f64)> =
        curve.points.iter().map(|point| (axes.x(point.step as f64), axes.y(point.success.value))).collect();
    let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {}/>", line.join(" "), stroke(index));
    if places.len() <= 20 {
        for (x, y) in places {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_eval::compare::Estimate;
    use turnwise_eval::statistics::Interval;

    fn curve_of(points: &[(u64, f64)]) -> Curve {
        let point = |&(step, value): &(u64, f64)| Point {
            step,
            runs: 2,
            success: Estimate { value, interval: Some(Interval { low: value - 0.1, high: value + 0.1 }) },
        };
        Curve { method: "a<b".into(), points: points.iter().map(point).collect() }
    }

    #[test]
    fn curves_have_lines_and_bands_over_an_axis_from_0() {
        let mut svg = String::new();
        panel(&mut svg, 0.0, "x & y", &[curve_of(&[(0, 0.2), (10, 0.4)])], &["a<b"]);
        assert!(svg.contains("x &amp; y") && !svg.contains("axis cut"));
        let line = format!("points=\"44.0,{:.1} 424.0,{:.1}\" fill=\"none\"", TOP + 156.0, TOP + 52.0);
        assert!(svg.contains(&line), "{svg}");
        assert_eq!((svg.matches("<polygon").count(), svg.matches("<circle").count()), (1, 2));
    }

    #[test]
    fn an_axis_that_does_not_begin_at_0_is_marked() {
        let mut svg = String::new();
        panel(&mut svg, 0.0, "test", &[curve_of(&[(0, 0.82), (10, 0.85)])], &["a<b"]);
        assert!(svg.contains("axis cut below 70 %"), "{svg}");
    }

    #[test]
    fn methods_beyond_the_colours_have_dashes() {
        assert_ne!(stroke(0), stroke(COLOURS.len()));
        assert_eq!(colour(0), colour(COLOURS.len()));
    }
}
