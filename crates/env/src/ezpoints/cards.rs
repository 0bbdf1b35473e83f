//! Cards and deals.

use std::fmt;

use turnwise_core::{Rng, digest};

use super::formula::Symbol;
use super::game::TARGET;

/// A suit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Suit {
    /// H
    Hearts,
    /// S
    Spades,
    /// D
    Diamonds,
    /// C
    Clubs,
}

impl Suit {
    /// All suits, in gym-cards' order.
    pub const ALL: [Self; 4] = [Self::Hearts, Self::Spades, Self::Diamonds, Self::Clubs];

    /// Returns the suit's letter in card names, such as `H`.
    pub fn letter(self) -> char {
        ['H', 'S', 'D', 'C'][self as usize]
    }

    /// Returns the suit's English name.
    pub fn word(self) -> &'static str {
        ["hearts", "spades", "diamonds", "clubs"][self as usize]
    }
}

const RANKS: [&str; 13] = ["A", "2", "3", "4", "5", "6", "7", "8", "9", "T", "J", "Q", "K"];

/// A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Card {
    suit: Suit,
    rank: u8,
}

impl Card {
    /// Creates a card of rank 1 (ace) to 13 (king).
    pub fn new(suit: Suit, rank: u8) -> Option<Self> {
        (1..=13).contains(&rank).then_some(Self { suit, rank })
    }

    /// Parses a card's name in gym-cards, such as `H4` or `CT`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut letters = name.chars();
        let letter = letters.next()?;
        let suit = Suit::ALL.into_iter().find(|suit| suit.letter() == letter)?;
        let rank = RANKS.iter().position(|rank| *rank == letters.as_str())?;
        Self::new(suit, rank as u8 + 1)
    }

    /// Returns the suit.
    pub fn suit(self) -> Suit {
        self.suit
    }

    /// Returns the rank, from 1 to 13.
    pub fn rank(self) -> u8 {
        self.rank
    }

    /// Returns the card's number in formulas: the rank, but at most 10.
    pub fn number(self) -> u8 {
        self.rank.min(10)
    }

    /// Returns the rank as printed: `A`, `2` to `10`, `J`, `Q`, `K`.
    pub fn rank_word(self) -> &'static str {
        if self.rank == 10 { "10" } else { RANKS[usize::from(self.rank) - 1] }
    }

    /// Returns the card in words, such as `4 of hearts`.
    pub fn words(self) -> String {
        [self.rank_word(), " of ", self.suit.word()].concat()
    }
}

impl fmt::Display for Card {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}{}", self.suit.letter(), RANKS[usize::from(self.rank) - 1])
    }
}

/// The two cards of a game, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deal(pub [Card; 2]);

impl Deal {
    /// Draws two cards with gym-cards' distribution. The first card's rank is uniform from 2 to
    /// king. The second card makes the sum or the product 12, with equal probability if both are
    /// possible. All suits are equally likely, and the two cards are swapped with probability 1/2.
    pub fn draw(rng: &mut Rng) -> Self {
        let rank = 2 + rng.below(12) as u8;
        let mut suit = || Suit::ALL[rng.below(4)];
        let (first, second) = (suit(), suit());
        let number = rank.min(10);
        let multiplied = matches!(number, 2 | 3 | 4 | 6) && rng.chance(0.5);
        let other = if multiplied { 12 / number } else { 12 - number };
        let mut cards = [Card { suit: first, rank }, Card { suit: second, rank: other }];
        if rng.chance(0.5) {
            cards.reverse();
        }
        Self(cards)
    }

    /// Returns all possible deals, sorted.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for rank in 2..=13u8 {
            let number = rank.min(10);
            let product = matches!(number, 2 | 3 | 4 | 6).then(|| 12 / number);
            for other in [Some(12 - number), product].into_iter().flatten() {
                for (first, second) in
                    Suit::ALL.into_iter().flat_map(|first| Suit::ALL.map(|second| (first, second)))
                {
                    let cards = [Card { suit: first, rank }, Card { suit: second, rank: other }];
                    all.extend([Self(cards), Self([cards[1], cards[0]])]);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the cards' numbers.
    pub fn numbers(self) -> [u8; 2] {
        self.0.map(Card::number)
    }

    /// Returns the operator with which the two cards make 12, or `None`.
    pub fn operator(self) -> Option<Symbol> {
        let [left, right] = self.numbers().map(i128::from);
        if left + right == TARGET {
            Some(Symbol::Plus)
        } else {
            (left * right == TARGET).then_some(Symbol::Times)
        }
    }

    /// Hashes the cards, ignoring their order.
    pub fn digest(self) -> String {
        let mut cards = self.0;
        cards.sort_unstable();
        digest(cards.map(|card| card.to_string()))
    }
}

impl fmt::Display for Deal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}-{}", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use turnwise_core::{Purpose, Seed};

    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["HA", "S2", "D9", "CT", "HJ", "SQ", "DK"] {
            assert_eq!(Card::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "H", "H1", "X4", "H10", "4H"] {
            assert_eq!(Card::parse(name), None, "{name}");
        }
        assert_eq!(Card::parse("CT").unwrap().words(), "10 of clubs");
        assert_eq!(["DA", "H7", "SK"].map(|name| Card::parse(name).unwrap().number()), [1, 7, 10]);
    }

    #[test]
    fn deals_have_the_originals_distribution() {
        let mut rng = Seed::derive(0, Purpose::World, &[]).rng();
        let mut counts: BTreeMap<[u8; 2], usize> = BTreeMap::new();
        let all = Deal::all();
        let draws = 24_000;
        for _ in 0..draws {
            let deal = Deal::draw(&mut rng);
            assert!(all.binary_search(&deal).is_ok(), "{deal}");
            let mut numbers = deal.numbers();
            numbers.sort_unstable();
            *counts.entry(numbers).or_default() += 1;
        }
        let expected =
            [([2, 6], 2), ([2, 10], 9), ([3, 4], 2), ([3, 9], 3), ([4, 8], 3), ([5, 7], 4), ([6, 6], 1)];
        assert_eq!(counts.len(), expected.len());
        for (numbers, share) in expected {
            let expected = draws * share / 24;
            let spread = 4.0 * (expected as f64).sqrt();
            let found = counts[&numbers];
            assert!((found as f64 - expected as f64).abs() < spread, "{numbers:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn every_deal_has_its_operator_and_others_have_none() {
        assert!(Deal::all().into_iter().all(|deal| deal.operator().is_some()));
        let operator = |cards: [&str; 2]| Deal(cards.map(|name| Card::parse(name).unwrap())).operator();
        assert_eq!(operator(["H4", "C8"]), Some(Symbol::Plus));
        assert_eq!(operator(["H6", "CK"]), None);
        assert_eq!(operator(["DQ", "S2"]), Some(Symbol::Plus));
        assert_eq!(operator(["D6", "S2"]), Some(Symbol::Times));
    }

    #[test]
    fn a_digest_knows_no_order() {
        let [left, right] = ["H4", "C8"].map(|name| Card::parse(name).unwrap());
        assert_eq!(Deal([left, right]).digest(), Deal([right, left]).digest());
        assert_ne!(Deal([left, left]).digest(), Deal([left, right]).digest());
    }
}
