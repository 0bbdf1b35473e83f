use std::fmt::Write as _;

use clap::ValueEnum;
use turnwise_env::pictures::Picture;

const MOST_COLUMNS: usize = 64;

/// How to show images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pictures {
    /// Half-block characters in a terminal, no images elsewhere.
    #[default]
    Auto,
    /// Half-block characters in 24-bit colours.
    Blocks,
    /// No images, only text.
    Off,
}

impl Pictures {
    pub(crate) fn resolve(self, terminal: bool, no_color: bool) -> Self {
        match self {
            Self::Auto if terminal && !no_color => Self::Blocks,
            Self::Auto => Self::Off,
            _ => self,
        }
    }

    pub(crate) fn show(self, picture: &Picture) -> String {
        match self {
            Self::Blocks => blocks(picture),
            Self::Auto | Self::Off => String::new(),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_shown_in_a_terminal_with_colours_only() {
        assert_eq!(Pictures::Auto.resolve(false, false), Pictures::Off);
        assert_eq!(Pictures::Auto.resolve(true, true), Pictures::Off);
        assert_eq!(Pictures::Auto.resolve(true, false), Pictures::Blocks);
        assert_eq!(Pictures::Blocks.resolve(false, true), Pictures::Blocks);
    }

    #[test]
    fn a_block_has_two_pixels() {
        let mut picture = Picture::new(2, 3, [255, 0, 0]);
        picture.paste(&Picture::new(2, 1, [0, 0, 255]), 0, 1);
        let red_over_blue = "\x1b[38;2;255;0;0;48;2;0;0;255m▀▀\x1b[0m";
        let blocks = Pictures::Blocks.show(&picture);
        assert!(blocks.starts_with(red_over_blue) && blocks.lines().count() == 2, "{blocks:?}");
        assert_eq!(Pictures::Off.show(&picture), "");
    }
}
