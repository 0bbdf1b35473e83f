//! Images of the cards and the formula. The card images are built in or read from gym-cards' files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use turnwise_core::EnvError;

use super::cards::{Card, Deal, Suit};
use super::formula::joined;
use super::game::Game;
use crate::pictures::strokes::{self, Letters};
use crate::pictures::{Color, Picture, png};

/// Side of the image in pixels.
pub(crate) const SIDE: usize = 300;
/// Width of a card in pixels.
pub(crate) const CARD_WIDTH: usize = 135;
/// Height of a card in pixels.
pub(crate) const CARD_HEIGHT: usize = 189;
const LEFT: [usize; 2] = [5, 153];
const TOP: usize = 55;
/// Pixel rows that show the formula. With gym-cards' card images, all other rows are identical to
/// gym-cards' rows.
pub(crate) const TEXT_ROWS: std::ops::Range<usize> = 258..282;
const TEXT_LINE: i32 = 277;
const LEFT_MARGIN: f32 = 10.0;
const TITLE: &str = "Formula: ";

const TABLE: Color = [0x35, 0x65, 0x4d];
const WHITE: Color = [255, 255, 255];
const RED: Color = [196, 30, 42];
const BLACK: Color = [20, 20, 24];

/// Number of pixel rows above the formula, which stay the same during an episode.
const UPPER: usize = TEXT_ROWS.start;

/// Card images.
#[derive(Debug)]
pub struct Cards {
    cards: Vec<Picture>,
    letters: Letters,
    lower: Picture,
    starts: Mutex<HashMap<Deal, Arc<png::Start>>>,
}

impl Cards {
    /// Draws the built-in card images.
    pub fn own() -> Self {
        Self::new(every_card().map(draw).collect())
    }

    fn new(cards: Vec<Picture>) -> Self {
        let letters = Letters::new("Formula:+*0123456789");
        let mut lower = Picture::new(SIDE, SIDE - UPPER, TABLE);
        letters.write(&mut lower, TITLE, (LEFT_MARGIN, TEXT_LINE - UPPER as i32), WHITE);
        Self { cards, letters, lower, starts: Mutex::default() }
    }

    /// Reads the images of gym-cards: `HA.png`, `H2.png` to `CK.png`, 135 x 189 pixels each. Aces
    /// may be missing because they are never dealt.
    ///
    /// # Errors
    /// Fails if an image is missing, has another size or is not PNG.
    pub fn read(folder: &Path) -> Result<Self, EnvError> {
        let read = |card: Card| {
            let path = folder.join(format!("{card}.png"));
            if card.rank() == 1 && !path.exists() {
                return Ok(draw(card));
            }
            let picture = png::read(&path)?;
            if (picture.width(), picture.height()) == (CARD_WIDTH, CARD_HEIGHT) {
                return Ok(picture);
            }
            let (width, height) = (picture.width(), picture.height());
            Err(EnvError::File {
                path: path.display().to_string(),
                reason: format!("it has {width} x {height} pixels; a card has {CARD_WIDTH} x {CARD_HEIGHT}"),
            })
        };
        every_card().map(read).collect::<Result<_, _>>().map(Self::new)
    }

    fn of(&self, card: Card) -> &Picture {
        &self.cards[13 * card.suit() as usize + usize::from(card.rank()) - 1]
    }

    /// Draws a game.
    pub fn render(&self, game: &Game) -> Picture {
        let mut picture = Picture::new(SIDE, SIDE, TABLE);
        self.deal_out(game.deal(), &mut picture);
        picture.paste(&self.formula(game), 0, UPPER);
        picture
    }

    /// Returns a game's image as a PNG file. The rows above the formula are compressed only once
    /// per deal.
    ///
    /// # Errors
    /// Fails if the image cannot be encoded.
    pub fn png(&self, game: &Game) -> Result<Vec<u8>, EnvError> {
        self.start(game.deal())?.finish(&self.formula(game))
    }

    fn deal_out(&self, deal: Deal, picture: &mut Picture) {
        for (card, left) in deal.0.into_iter().zip(LEFT) {
            picture.paste(self.of(card), left, TOP);
        }
    }

    fn formula(&self, game: &Game) -> Picture {
        let mut rows = self.lower.clone();
        let left = LEFT_MARGIN + strokes::width(TITLE);
        let text = joined(game.formula(), " ");
        self.letters.write(&mut rows, &text, (left, TEXT_LINE - UPPER as i32), WHITE);
        rows
    }

    fn start(&self, deal: Deal) -> Result<Arc<png::Start>, EnvError> {
        // Entries are complete even after a panic.
        let lock = || self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&deal) {
            return Ok(Arc::clone(known));
        }
        let mut upper = Picture::new(SIDE, UPPER, TABLE);
        self.deal_out(deal, &mut upper);
        let start = Arc::new(png::Start::new(&upper, SIDE)?);
        lock().insert(deal, Arc::clone(&start));
        Ok(start)
    }
}

fn every_card() -> impl Iterator<Item = Card> {
    Suit::ALL.into_iter().flat_map(|suit| (1..=13).filter_map(move |rank| Card::new(suit, rank)))
}

fn draw(card: Card) -> Picture {
    let (width, height) = (CARD_WIDTH as f32, CARD_HEIGHT as f32);
    let color = if matches!(card.suit(), Suit::Hearts | Suit::Diamonds) { RED } else { BLACK };
    let mut picture = Picture::new(CARD_WIDTH, CARD_HEIGHT, TABLE);
    let all = (0, 0, CARD_WIDTH, CARD_HEIGHT);
    picture.fill(all, WHITE, |x, y| {
        let (right, down) =
            ((x - width / 2.0).abs() - width / 2.0 + 6.0, (y - height / 2.0).abs() - height / 2.0 + 6.0);
        right.max(0.0).hypot(down.max(0.0)) + right.max(down).min(0.0) - 6.0
    });
    let rank = card.rank_word();
    strokes::write(&mut picture, rank, (6.0, 24.0), color);
    strokes::write(&mut picture, rank, (width - 6.0 - strokes::width(rank), height - 9.0), color);
    for (x, y, size) in
        [(14.0, 38.0, 8.0), (width - 14.0, height - 40.0, 8.0), (width / 2.0, height / 2.0, 34.0)]
    {
        picture
            .fill(all, color, |px, py| suit_distance(card.suit(), (px - x) / size, (py - y) / size) * size);
    }
    picture
}

/// Returns the signed distance from a point to a suit's symbol, whose coordinates go from -1 to 1.
fn suit_distance(suit: Suit, x: f32, y: f32) -> f32 {
    let x = x.abs();
    let heart = |y: f32| {
        let lobe = (x - 0.48).hypot(y + 0.42) - 0.52;
        let tip = ((x + 0.86 * (y - 1.0)) * 0.76).max(-y - 0.42);
        lobe.min(tip)
    };
    let stem = |y: f32| (x - 0.12 - 0.25 * (y - 0.4).max(0.0)).max(0.3 - y).max(y - 1.0);
    match suit {
        Suit::Diamonds => (x / 0.75 + y.abs() - 1.0) * 0.6,
        Suit::Hearts => heart(y),
        Suit::Spades => heart(-y - 0.1).min(stem(y)),
        Suit::Clubs => {
            let leaf = |right: f32, down: f32| (x - right).hypot(y - down) - 0.42;
            leaf(0.0, -0.5).min(leaf(0.5, 0.2)).min(stem(y))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::game::Action;
    use super::*;

    #[test]
    fn every_card_and_every_formula_looks_different() {
        let cards = Cards::own();
        for (index, card) in cards.cards.iter().enumerate() {
            assert!(cards.cards[..index].iter().all(|other| other != card), "card {index}");
        }
        let deal = Deal(["H4", "C8"].map(|name| Card::parse(name).unwrap()));
        let mut game = Game::new(deal);
        let mut seen = vec![cards.render(&game)];
        for action in ["4", "+", "8"] {
            game.act(Action::parse(action));
            let picture = cards.render(&game);
            assert!(!seen.contains(&picture));
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("game.png");
            std::fs::write(&file, cards.png(&game).unwrap()).unwrap();
            assert_eq!(png::read(&file).unwrap(), picture, "the file shows the picture");
            seen.push(picture);
        }
        let last = &seen[3];
        assert_eq!((last.width(), last.height(), last.pixel(0, 0)), (300, 300, TABLE));
        for (first, last) in seen[0]
            .rgb()
            .chunks(3 * SIDE)
            .zip(last.rgb().chunks(3 * SIDE))
            .enumerate()
            .filter_map(|(row, pair)| (!TEXT_ROWS.contains(&row)).then_some(pair))
        {
            assert_eq!(first, last);
        }
    }
}
