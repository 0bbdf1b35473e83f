//! Pictures in a terminal: half blocks, sixel or kitty's protocol.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use turnwise_env::pictures::{Picture, png};

/// Maximum width of a half-block picture, in columns.
const MOST_COLUMNS: usize = 64;

/// Bytes per chunk of kitty's protocol.
const PIECE: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pictures {
    /// The best that the terminal supports: kitty, sixel or half blocks; off without a terminal.
    #[default]
    Auto,
    /// Half blocks in 24-bit colours.
    Blocks,
    /// Sixel graphics.
    Sixel,
    /// Kitty's graphics protocol.
    Kitty,
    /// No pictures, only text.
    Off,
}

impl Pictures {
    /// Resolves `auto`. `variable` looks up an environment variable.
    pub(crate) fn resolve(self, terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        if self != Self::Auto {
            return self;
        }
        if !terminal || variable("NO_COLOR").is_some() {
            return Self::Off;
        }
        let is = |name: &str, values: &[&str]| {
            variable(name)
                .is_some_and(|value| values.iter().any(|known| value.to_lowercase().contains(known)))
        };
        if variable("KITTY_WINDOW_ID").is_some()
            || is("TERM", &["kitty", "ghostty"])
            || is("TERM_PROGRAM", &["ghostty", "wezterm"])
        {
            Self::Kitty
        } else if is("TERM", &["sixel", "foot", "mlterm"]) || is("TERM_PROGRAM", &["mlterm", "mintty"]) {
            Self::Sixel
        } else {
            Self::Blocks
        }
    }

    /// Encodes a picture for the terminal, without a final line break; empty for `off`.
    pub(crate) fn show(self, picture: &Picture) -> anyhow::Result<String> {
        Ok(match self {
            Self::Blocks => blocks(picture),
            Self::Sixel => sixel(picture),
            Self::Kitty => kitty(&png::encode(picture)?),
            Self::Auto | Self::Off => String::new(),
        })
    }
}

/// Draws two rows of pixels per line: the upper pixel colours a half block, the lower one its
/// background.
fn blocks(picture: &Picture) -> String {
    let shrink = picture.width().div_ceil(MOST_COLUMNS).max(1);
    let (width, height) = (picture.width() / shrink, picture.height() / shrink);
    let picture = picture.scaled(width, height);
    let mut out = String::new();
    for y in (0..height).step_by(2) {
        if y > 0 {
            out.push('\n');
        }
        let mut last = None;
        for x in 0..width {
            // The last row of an odd height fills both halves.
            let pair = (picture.pixel(x, y), picture.pixel(x, (y + 1).min(height - 1)));
            if last != Some(pair) {
                let ([r, g, b], [red, green, blue]) = pair;
                let _ = write!(out, "\x1b[38;2;{r};{g};{b};48;2;{red};{green};{blue}m");
                last = Some(pair);
            }
            out.push('▀');
        }
        out.push_str("\x1b[0m");
    }
    out
}

/// Encodes a picture as sixels with a palette of 216 colours. Each colour is written once per six
/// rows of pixels.
fn sixel(picture: &Picture) -> String {
    let level = |byte: u8| (usize::from(byte) * 5 + 127) / 255;
    let index = |[r, g, b]: [u8; 3]| 36 * level(r) + 6 * level(g) + level(b);
    let mut out = format!("\x1bPq\"1;1;{};{}", picture.width(), picture.height());
    for color in 0..216 {
        let _ = write!(out, "#{color};2;{};{};{}", color / 36 * 20, color / 6 % 6 * 20, color % 6 * 20);
    }
    for top in (0..picture.height()).step_by(6) {
        let rows = (picture.height() - top).min(6);
        let mut columns = std::collections::BTreeMap::new();
        for x in 0..picture.width() {
            for row in 0..rows {
                let column = columns
                    .entry(index(picture.pixel(x, top + row)))
                    .or_insert_with(|| vec![0u8; picture.width()]);
                column[x] |= 1 << row;
            }
        }
        for (number, (color, bits)) in columns.into_iter().enumerate() {
            if number > 0 {
                out.push('$');
            }
            let _ = write!(out, "#{color}");
            for run in bits.chunk_by(|left, right| left == right) {
                let letter = char::from(63 + run[0]);
                if run.len() > 3 {
                    let _ = write!(out, "!{}{letter}", run.len());
                } else {
                    out.extend(std::iter::repeat_n(letter, run.len()));
                }
            }
        }
        out.push('-');
    }
    out.push_str("\x1b\\");
    out
}

fn kitty(file: &[u8]) -> String {
    let text = STANDARD.encode(file);
    let mut out = String::new();
    let count = text.len().div_ceil(PIECE);
    for (number, piece) in text.as_bytes().chunks(PIECE).enumerate() {
        let head = if number == 0 { "a=T,f=100," } else { "" };
        let more = u8::from(number + 1 < count);
        let _ = write!(out, "\x1b_G{head}m={more};{}\x1b\\", String::from_utf8_lossy(piece));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_says_what_it_can() {
        let resolve = |terminal: bool, variables: &[(&str, &str)]| {
            Pictures::Auto.resolve(terminal, |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(resolve(false, &[("TERM", "xterm-kitty")]), Pictures::Off);
        assert_eq!(resolve(true, &[("NO_COLOR", "1")]), Pictures::Off);
        assert_eq!(resolve(true, &[("TERM", "xterm-kitty")]), Pictures::Kitty);
        assert_eq!(resolve(true, &[("TERM_PROGRAM", "WezTerm")]), Pictures::Kitty);
        assert_eq!(resolve(true, &[("TERM", "foot")]), Pictures::Sixel);
        assert_eq!(resolve(true, &[("TERM", "xterm-256color")]), Pictures::Blocks);
        assert_eq!(Pictures::Sixel.resolve(false, |_| None), Pictures::Sixel);
    }

    #[test]
    fn pictures_are_written_as_their_protocols_ask() {
        let mut picture = Picture::new(2, 3, [255, 0, 0]);
        picture.paste(&Picture::new(2, 1, [0, 0, 255]), 0, 1);
        let red_over_blue = "\x1b[38;2;255;0;0;48;2;0;0;255m▀▀\x1b[0m";
        let blocks = Pictures::Blocks.show(&picture).unwrap();
        assert!(blocks.starts_with(red_over_blue) && blocks.lines().count() == 2, "{blocks:?}");
        let sixel = Pictures::Sixel.show(&picture).unwrap();
        assert!(sixel.starts_with("\x1bPq\"1;1;2;3#0;2;0;0;0#1;2;0;0;20"), "{sixel:?}");
        // Blue is in the second row (2 + 63), red in the first and third (5 + 63).
        assert!(sixel.ends_with("#5AA$#180DD-\x1b\\"), "{sixel:?}");
        let kitty = Pictures::Kitty.show(&picture).unwrap();
        assert!(
            kitty.starts_with("\x1b_Ga=T,f=100,m=0;iVBORw0KGgo") && kitty.ends_with("\x1b\\"),
            "{kitty:?}"
        );
        let long = kitty_pieces(10_000);
        assert_eq!(long.matches("\x1b_G").count(), 4);
        assert!(long.contains("\x1b_Gm=1;") && long.contains("\x1b_Gm=0;"));
        assert_eq!(Pictures::Off.show(&picture).unwrap(), "");
    }

    fn kitty_pieces(bytes: usize) -> String {
        super::kitty(&vec![7; bytes])
    }
}
