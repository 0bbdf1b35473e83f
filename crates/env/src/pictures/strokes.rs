//! Letters and digits drawn with a round pen, in the proportions of gym-cards' font (DejaVu Sans,
//! 20 pixels).

use std::collections::HashMap;

use super::canvas::{Color, Picture};

/// Half the stroke width at a text height of 20 pixels.
const PEN: f32 = 0.95;

/// Point of a letter: its distance to the right of the pen's position and above the baseline.
type Point = (f32, f32);

enum Stroke {
    Lines(&'static [Point]),
    /// Elliptic arc: centre, semi-axes, and angles in degrees counter-clockwise from the right.
    Arc(Point, Point, f32, f32),
}

use Stroke::{Arc, Lines};

fn glyph(letter: char) -> (&'static [Stroke], f32) {
    match letter {
        'F' => (&[Lines(&[(9.4, 14.0), (2.95, 14.0), (2.95, 0.9)]), Lines(&[(2.95, 8.0), (8.7, 8.0)])], 11.5),
        'o' => (&[Arc((5.9, 5.5), (4.1, 4.55), 0.0, 360.0)], 12.24),
        'r' => (&[Lines(&[(2.1, 10.1), (2.1, 0.9)]), Arc((6.2, 5.6), (4.1, 4.4), 75.0, 180.0)], 8.22),
        'm' => (
            &[
                Lines(&[(2.0, 10.1), (2.0, 0.9)]),
                Arc((5.5, 6.4), (3.5, 3.65), 0.0, 180.0),
                Lines(&[(9.0, 6.6), (9.0, 0.9)]),
                Arc((12.5, 6.4), (3.5, 3.65), 0.0, 180.0),
                Lines(&[(16.0, 6.6), (16.0, 0.9)]),
            ],
            19.48,
        ),
        'u' => (
            &[
                Lines(&[(1.4, 10.1), (1.4, 4.4)]),
                Arc((5.0, 4.4), (3.6, 3.5), 180.0, 360.0),
                Lines(&[(8.6, 10.1), (8.6, 0.9)]),
            ],
            12.68,
        ),
        'l' => (&[Lines(&[(1.5, 14.1), (1.5, 0.9)])], 5.56),
        'a' => (
            &[
                Arc((4.4, 6.2), (3.8, 3.9), 0.0, 135.0),
                Lines(&[(8.2, 6.2), (8.2, 0.9)]),
                Arc((4.0, 3.4), (3.1, 2.5), 90.0, 300.0),
                Lines(&[(4.0, 5.9), (8.2, 5.9)]),
                Lines(&[(5.7, 1.1), (8.2, 3.6)]),
            ],
            12.26,
        ),
        ':' => (&[Lines(&[(2.1, 1.0), (2.7, 1.0)]), Lines(&[(2.1, 9.0), (2.7, 9.0)])], 5.9),
        '+' => (&[Lines(&[(3.0, 6.0), (13.7, 6.0)]), Lines(&[(8.4, 0.8), (8.4, 11.2)])], 16.76),
        '*' => (
            &[
                Lines(&[(5.0, 7.0), (5.0, 14.2)]),
                Lines(&[(1.6, 8.8), (8.4, 12.4)]),
                Lines(&[(1.6, 12.4), (8.4, 8.8)]),
            ],
            10.0,
        ),
        '0' => (&[Arc((6.4, 7.5), (4.2, 6.6), 0.0, 360.0)], 12.72),
        '1' => (&[Lines(&[(3.2, 12.9), (6.9, 13.9), (6.9, 0.9)]), Lines(&[(3.0, 1.0), (10.6, 1.0)])], 12.72),
        '2' => (
            &[Arc((6.0, 10.2), (3.9, 3.8), -25.0, 150.0), Lines(&[(9.5, 8.6), (2.4, 1.0), (10.2, 1.0)])],
            12.72,
        ),
        '3' => (
            &[
                Arc((5.6, 10.9), (3.9, 3.1), -80.0, 150.0),
                Arc((5.4, 4.3), (4.6, 3.4), -140.0, 80.0),
                Lines(&[(4.4, 7.7), (6.2, 7.7)]),
            ],
            12.72,
        ),
        '4' => (&[Lines(&[(8.5, 0.9), (8.5, 14.0), (2.0, 4.0), (10.8, 4.0)])], 12.72),
        '5' => (
            &[Lines(&[(9.6, 14.0), (3.0, 14.0), (3.0, 8.3)]), Arc((5.6, 4.9), (4.6, 4.0), -140.0, 125.0)],
            12.72,
        ),
        '6' => (&[Arc((6.6, 4.9), (4.0, 3.95), 0.0, 360.0), Arc((8.0, 7.0), (5.6, 7.0), 65.0, 190.0)], 12.72),
        '7' => (&[Lines(&[(1.9, 14.0), (10.4, 14.0), (4.9, 0.9)])], 12.72),
        '8' => (&[Arc((6.4, 11.0), (3.7, 3.0), 0.0, 360.0), Arc((6.4, 4.2), (4.2, 3.3), 0.0, 360.0)], 12.72),
        '9' => {
            (&[Arc((6.1, 10.1), (4.0, 3.95), 0.0, 360.0), Arc((4.7, 8.0), (5.6, 7.0), -115.0, 10.0)], 12.72)
        }
        'A' => (&[Lines(&[(1.0, 0.9), (6.4, 14.0), (11.8, 0.9)]), Lines(&[(3.2, 5.0), (9.6, 5.0)])], 12.8),
        'J' => (&[Lines(&[(7.4, 14.0), (7.4, 4.4)]), Arc((4.4, 4.4), (3.0, 3.4), 200.0, 360.0)], 10.5),
        'Q' => (&[Arc((7.2, 7.5), (5.4, 6.6), 0.0, 360.0), Lines(&[(8.0, 3.4), (12.0, -0.6)])], 14.4),
        'K' => (
            &[
                Lines(&[(2.9, 14.0), (2.9, 0.9)]),
                Lines(&[(10.6, 14.0), (3.2, 6.6)]),
                Lines(&[(5.0, 8.4), (11.4, 0.9)]),
            ],
            13.1,
        ),
        _ => (&[], 6.36),
    }
}

pub(crate) fn width(text: &str) -> f32 {
    text.chars().map(|letter| glyph(letter).1).sum()
}

/// Draws text that is 20 pixels high and starts at (`x`, `y`) on the baseline.
pub(crate) fn write(picture: &mut Picture, text: &str, (x, y): Point, color: Color) {
    let mut x = x;
    for letter in text.chars() {
        for (right, down, share) in shares(letter, (x, y)) {
            picture.blend(right, down, color, share);
        }
        x += glyph(letter).1;
    }
}

fn shares(letter: char, (x, y): Point) -> Vec<(usize, usize, f32)> {
    let (strokes, advance) = glyph(letter);
    let place = |(right, above): Point| (x + right, y - above);
    let lines: Vec<Vec<Point>> =
        strokes.iter().map(|stroke| points(stroke).into_iter().map(place).collect()).collect();
    let nearest = |at: Point| {
        let ends = lines.iter().flat_map(|line| line.windows(2));
        ends.map(|ends| to_segment(at, ends[0], ends[1])).fold(f32::MAX, f32::min)
    };
    let bound = |edge: f32| edge.max(0.0) as usize;
    let (columns, rows) = (bound(x - 2.0)..bound(x + advance + 4.0), bound(y - 17.0)..bound(y + 3.0));
    let pixels = rows.flat_map(|row| columns.clone().map(move |column| (column, row)));
    pixels
        .map(|(column, row)| (column, row, 0.5 + PEN - nearest((column as f32 + 0.5, row as f32 + 0.5))))
        .filter(|(_, _, share)| *share > 0.0)
        .collect()
}

const PHASES: i32 = 16;

const ORIGIN: (i32, i32) = (4, 20);

type Mask = Vec<(i32, i32, f32)>;

/// Letters, each rendered at sixteen horizontal offsets within a pixel.
#[derive(Debug)]
pub(crate) struct Letters(HashMap<char, Vec<Mask>>);

impl Letters {
    pub(crate) fn new(letters: &str) -> Self {
        let mask = |letter: char, phase: i32| {
            let at = (ORIGIN.0 as f32 + phase as f32 / PHASES as f32, ORIGIN.1 as f32);
            let place = |(column, row, share)| (column as i32 - ORIGIN.0, row as i32 - ORIGIN.1, share);
            shares(letter, at).into_iter().map(place).collect()
        };
        let masks = |letter| (letter, (0..PHASES).map(|phase| mask(letter, phase)).collect());
        Self(letters.chars().map(masks).collect())
    }

    /// Like [`write()`], but horizontal positions are rounded to sixteenths of a pixel. Letters
    /// that were not rendered beforehand stay blank.
    pub(crate) fn write(&self, picture: &mut Picture, text: &str, (x, y): (f32, i32), color: Color) {
        let mut x = x;
        for letter in text.chars() {
            let parts = (x * PHASES as f32).round() as i32;
            let (column, phase) = (parts.div_euclid(PHASES), parts.rem_euclid(PHASES));
            for (right, down, share) in self.0.get(&letter).map_or(&[][..], |masks| &masks[phase as usize]) {
                // Negative coordinates wrap to huge ones, which `blend` ignores.
                picture.blend((column + right) as usize, (y + down) as usize, color, *share);
            }
            x += glyph(letter).1;
        }
    }
}

fn points(stroke: &Stroke) -> Vec<Point> {
    match *stroke {
        Lines(points) => points.to_vec(),
        Arc((x, y), (across, up), from, to) => {
            let steps = 24;
            let at = |step: i32| {
                let angle = (from + (to - from) * step as f32 / steps as f32).to_radians();
                (x + across * angle.cos(), y + up * angle.sin())
            };
            (0..=steps).map(at).collect()
        }
    }
}

fn to_segment(point: Point, from: Point, to: Point) -> f32 {
    let (along, off) = ((to.0 - from.0, to.1 - from.1), (point.0 - from.0, point.1 - from.1));
    let length = along.0 * along.0 + along.1 * along.1;
    let share =
        if length > 0.0 { ((off.0 * along.0 + off.1 * along.1) / length).clamp(0.0, 1.0) } else { 0.0 };
    let (x, y) = (off.0 - share * along.0, off.1 - share * along.1);
    x.hypot(y)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(draw: impl FnOnce(&mut Picture)) -> Picture {
        let mut picture = Picture::new(60, 24, [0, 0, 0]);
        draw(&mut picture);
        picture
    }

    #[test]
    fn copied_letters_are_the_drawn_ones() {
        let letters = Letters::new("or12");
        for x in [5.0, 5.25, 17.5, 40.75] {
            for letter in ["o", "r", "1", "2"] {
                let drawn = written(|picture| write(picture, letter, (x, 20.0), [255; 3]));
                let copied = written(|picture| letters.write(picture, letter, (x, 20), [255; 3]));
                let apart = drawn.rgb().iter().zip(copied.rgb()).map(|(a, b)| a.abs_diff(*b)).max();
                assert!(apart <= Some(1) && drawn != written(|_| ()), "{letter} at {x}: {apart:?}");
            }
        }
    }

    #[test]
    fn what_lies_outside_is_left_out() {
        let letters = Letters::new("m");
        let drawn = written(|picture| letters.write(picture, "mx", (-8.0, 4), [255; 3]));
        assert_ne!(drawn, written(|_| ()));
        assert_eq!(written(|picture| letters.write(picture, "m", (70.0, 20), [255; 3])), written(|_| ()));
    }
}
