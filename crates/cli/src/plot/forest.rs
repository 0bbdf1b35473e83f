use std::fmt::Write as _;

use turnwise_eval::compare::Estimate;

use super::{COLOURS, GREY, LETTER, Piece, ticks};
use crate::commands::pages::html::escape;

const ONE: f64 = 460.0;
const SEVERAL: f64 = 210.0;
const GAP: f64 = 38.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;

pub(crate) struct Forest {
    pub(crate) panels: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) row: f64,
    /// Range that the axis always includes, in hundredths.
    pub(crate) covers: (f64, f64),
    /// Axis limits in hundredths; marks beyond them are drawn at the end of the axis.
    pub(crate) limits: (f64, f64),
    /// Formats a tick, given in hundredths.
    pub(crate) label: fn(f64) -> String,
    /// Whether each mark's text is always shown beside the axis, and not only on hover.
    pub(crate) numbers: bool,
    /// Labels below the axis: position in hundredths, and text such as `no credit`.
    pub(crate) words: Vec<(f64, String)>,
}

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) marks: Vec<Option<Mark>>,
}

pub(crate) struct Mark {
    pub(crate) estimate: Estimate,
    pub(crate) colour: &'static str,
    /// Whether the mark is a ring, because it is a placeholder and not an estimate.
    pub(crate) hollow: bool,
    pub(crate) text: String,
}

impl Mark {
    /// Returns a difference's mark: grey if the interval is unknown or contains 0, blue above 0,
    /// orange below.
    pub(crate) fn difference(estimate: Estimate) -> Self {
        let colour = match estimate.interval {
            Some(interval) if interval.low > 0.0 => COLOURS[0],
            Some(interval) if interval.high < 0.0 => COLOURS[1],
            _ => GREY,
        };
        let value = 100.0 * estimate.value;
        let text = match estimate.interval {
            Some(it) => format!("{value:+.1} [{:.1}, {:.1}]", 100.0 * it.low, 100.0 * it.high),
            None => format!("{value:+.1}"),
        };
        Self { estimate, colour, hollow: false, text }
    }

    fn ends(&self) -> [f64; 3] {
        let Estimate { value, interval } = self.estimate;
        interval.map_or([value; 3], |it| [it.low, value, it.high]).map(|value| 100.0 * value)
    }
}

impl Forest {
    pub(crate) fn draw(&self) -> Piece {
        let axis = Axis::of(self);
        let width = if self.panels.len() > 1 { SEVERAL } else { ONE };
        let letters = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
        };
        let left = 24.0 + LETTER * letters(&mut self.rows.iter().map(|row| row.name.as_str()));
        let marks = self.rows.iter().flat_map(|row| row.marks.iter().flatten());
        let text = letters(&mut marks.map(|mark| mark.text.as_str()));
        let text = if self.numbers { 16.0 + LETTER * text } else { GAP };
        let bottom = TOP + self.row * self.rows.len() as f64;
        let mut body = String::new();
        for (panel, title) in self.panels.iter().enumerate() {
            let axis = Axis { left: left + (width + text) * panel as f64, width, ..axis.clone() };
            axis.draw(&mut body, self, bottom, title);
            for (index, row) in self.rows.iter().enumerate() {
                if let Some(mark) = row.marks.get(panel).and_then(Option::as_ref) {
                    let y = TOP + self.row * (index as f64 + 0.5);
                    axis.mark(&mut body, y, &row.name, mark, self.numbers);
                }
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
            let y = TOP + self.row * (index as f64 + 0.5) + 4.0;
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
                left - 10.0,
                escape(&row.name)
            );
        }
        Piece { body, width: left + (width + text) * self.panels.len() as f64, height: bottom + BOTTOM }
    }
}

/// The horizontal axis, in hundredths.
#[derive(Clone)]
struct Axis {
    left: f64,
    width: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn of(forest: &Forest) -> Self {
        let marks = forest.rows.iter().flat_map(|row| row.marks.iter().flatten());
        let (low, high) = marks
            .flat_map(Mark::ends)
            .filter(|value| value.is_finite())
            .fold(forest.covers, |(low, high), value| (low.min(value), high.max(value)));
        let ticks = ticks(low.max(forest.limits.0), high.min(forest.limits.1));
        Self { left: 0.0, width: ONE, ticks }
    }

    fn x(&self, value: f64) -> f64 {
        let (low, high) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        self.left + self.width * (value.clamp(low, high) - low) / (high - low)
    }

    fn draw(&self, svg: &mut String, forest: &Forest, bottom: f64, title: &str) {
        if !title.is_empty() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
                self.left + self.width / 2.0,
                TOP - 12.0,
                escape(title)
            );
        }
        for tick in &self.ticks {
            let x = self.x(*tick);
            let stroke = if *tick == 0.0 { "#888888" } else { "#dddddd" };
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                (forest.label)(*tick)
            );
        }
        for (value, words) in &forest.words {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{}</text>",
                self.x(*value),
                bottom + 36.0,
                escape(words)
            );
        }
    }

    fn mark(&self, svg: &mut String, y: f64, name: &str, mark: &Mark, number: bool) {
        let Mark { estimate: Estimate { value, interval }, colour, hollow, text } = mark;
        let _ = write!(svg, "<g><title>{}: {}</title>", escape(name), escape(text));
        if let Some(interval) = interval {
            let _ = write!(
                svg,
                "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                self.x(100.0 * interval.low),
                self.x(100.0 * interval.high)
            );
        }
        let fill = if *hollow {
            format!("fill=\"white\" stroke=\"{colour}\" stroke-width=\"1.5\"")
        } else {
            format!("fill=\"{colour}\"")
        };
        let _ = write!(svg, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" {fill}/>", self.x(100.0 * value));
        if number {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444\">{}</text>",
                self.left + self.width + 8.0,
                y + 4.0,
                escape(text)
            );
        }
        svg.push_str("</g>\n");
    }
}

#[cfg(test)]
mod tests {
    use turnwise_eval::statistics::Interval;

    use super::*;

    fn forest(values: &[(f64, f64, f64)]) -> Forest {
        let row = |&(low, value, high): &(f64, f64, f64)| Row {
            name: "a<b".into(),
            marks: vec![Some(Mark::difference(Estimate { value, interval: Some(Interval { low, high }) }))],
        };
        Forest {
            panels: vec!["test & co".into()],
            rows: values.iter().map(row).collect(),
            row: 20.0,
            covers: (0.0, 0.0),
            limits: (-100.0, 100.0),
            label: |tick| format!("{tick:+.0}"),
            numbers: true,
            words: Vec::new(),
        }
    }

    #[test]
    fn differences_are_coloured_by_what_their_intervals_decide() {
        let piece = forest(&[(0.01, 0.05, 0.1), (-0.1, -0.05, -0.01), (-0.02, 0.01, 0.05)]).draw();
        for colour in [COLOURS[0], COLOURS[1], GREY] {
            assert_eq!(
                piece.body.matches(&format!("r=\"4\" fill=\"{colour}\"")).count(),
                1,
                "{}",
                piece.body
            );
        }
        assert!(piece.body.contains("a&lt;b: +5.0 [1.0, 10.0]") && piece.body.contains("test &amp; co"));
        let middle = 24.0 + 3.0 * LETTER + ONE / 2.0;
        assert!(
            piece.body.contains(&format!("x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"30\"")),
            "{}",
            piece.body
        );
    }

    #[test]
    fn marks_beyond_the_limits_are_at_the_end_of_the_axis() {
        let axis = Axis::of(&forest(&[(-3.0, 0.5, 0.6)]));
        assert_eq!(axis.ticks.first(), Some(&-100.0));
        assert!((axis.x(-300.0) - axis.x(-100.0)).abs() < 1e-9 && axis.x(20.0) < axis.x(30.0));
    }
}
