use std::fmt::Write as _;

use super::figure::figure;
use super::{COLOURS, Piece};
use crate::commands::pages::html::escape;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 56.0;

/// Draws finite points; `x` and `y` label the axes, which include 0.
pub(crate) fn scatter(points: &[(f64, f64)], x: &str, y: &str) -> Piece {
    let points: Vec<(f64, f64)> =
        points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) =
            points.iter().map(of).fold((0.0_f64, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        if high > low { (low, high) } else { (-1.0, 1.0) }
    };
    let (across, up) = (range(|point| point.0), range(|point| point.1));
    let at = |value: f64, (low, high): (f64, f64), size: f64| (value - low) / (high - low) * size;
    let place = |(x, y): (f64, f64)| (LEFT + at(x, across, WIDTH), TOP + HEIGHT - at(y, up, HEIGHT));
    let (zero_x, zero_y) = place((0.0, 0.0));
    let bottom = TOP + HEIGHT;
    let mut body = format!(
        "<path d=\"M{zero_x:.1} {TOP}V{bottom}M{LEFT} {zero_y:.1}h{WIDTH}\" stroke=\"#bbbbbb\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        LEFT + WIDTH / 2.0,
        bottom + 40.0,
        escape(x),
        TOP + HEIGHT / 2.0,
        escape(y)
    );
    for value in [across.0, across.1] {
        let (x, _) = place((value, 0.0));
        let _ = writeln!(
            body,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            figure(value)
        );
    }
    for value in [up.0, up.1] {
        let (_, y) = place((0.0, value));
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            figure(value)
        );
    }
    for point in points {
        let (x, y) = place(point);
        let _ = writeln!(
            body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\" fill-opacity=\"0.6\"><title>{}, {}</title></circle>",
            COLOURS[0],
            figure(point.0),
            figure(point.1)
        );
    }
    Piece { body, width: LEFT + WIDTH + 20.0, height: bottom + BOTTOM }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_placed_between_the_extremes_and_0() {
        let piece = scatter(&[(2.0, -1.0), (-2.0, 1.0), (f64::NAN, 0.0)], "a<b", "c");
        assert_eq!(piece.body.matches("<circle").count(), 2);
        assert!(piece.body.contains(&format!("cx=\"{:.1}\" cy=\"{:.1}\"", LEFT + WIDTH, TOP + HEIGHT)));
        assert!(piece.body.contains("a&lt;b") && piece.body.contains("<title>2, -1</title>"));
    }
}
