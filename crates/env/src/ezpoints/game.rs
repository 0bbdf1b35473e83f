//! Effects and rewards of actions.

use super::cards::Deal;
use super::formula::{Symbol, eval, text};

/// Value of a winning formula.
pub(crate) const TARGET: i128 = 12;

/// Reward for a formula that uses both cards and equals the target.
pub(crate) const REWARD: f64 = 10.0;

/// Maximum number of symbols in a formula that can still be extended. If a formula is longer, the
/// next valid action ends the episode.
pub(crate) const MOST_SYMBOLS: usize = 5;

/// All actions, ordered as in gym-cards.
pub const ACTIONS: [&str; 13] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "+", "*", "="];

/// A parsed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Appends a symbol.
    Add(Symbol),
    /// Evaluates the formula (`=`).
    Evaluate,
    /// Any other text, which has no effect. In gym-cards, this action has the number -1.
    Nothing,
}

impl Action {
    /// Parses one of [`ACTIONS`].
    pub fn parse(text: &str) -> Self {
        place_of(text.trim()).map_or(Self::Nothing, Self::of)
    }

    /// Returns the action at an index of [`ACTIONS`].
    pub fn of(index: usize) -> Self {
        match index {
            0..=9 => Self::Add(Symbol::Number(index as u8 + 1)),
            10 => Self::Add(Symbol::Plus),
            11 => Self::Add(Symbol::Times),
            12 => Self::Evaluate,
            _ => Self::Nothing,
        }
    }
}

pub(super) fn place_of(text: &str) -> Option<usize> {
    match *text.as_bytes() {
        [digit @ b'1'..=b'9'] => Some(usize::from(digit - b'1')),
        [b'1', b'0'] => Some(9),
        [b'+'] => Some(10),
        [b'*'] => Some(11),
        [b'='] => Some(12),
        _ => None,
    }
}

/// Result of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// `REWARD` or 0.
    pub reward: f64,
    /// Whether the formula was evaluated.
    pub terminated: bool,
    /// Whether the episode ended because the formula was too long.
    pub truncated: bool,
    /// Whether the formula changed or was evaluated.
    pub effective: bool,
}

/// Cards and formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    deal: Deal,
    formula: Vec<Symbol>,
}

impl Game {
    /// Starts an episode.
    pub fn new(deal: Deal) -> Self {
        Self { deal, formula: Vec::new() }
    }

    /// Returns the cards.
    pub fn deal(&self) -> Deal {
        self.deal
    }

    /// Returns the formula.
    pub fn formula(&self) -> &[Symbol] {
        &self.formula
    }

    fn left(&self, number: u8) -> usize {
        let dealt = self.deal.0.iter().filter(|card| card.number() == number).count();
        let used = self.formula.iter().filter(|symbol| **symbol == Symbol::Number(number)).count();
        dealt.saturating_sub(used)
    }

    /// Returns true for operators and for numbers of unused cards.
    pub fn can_add(&self, symbol: Symbol) -> bool {
        match symbol {
            Symbol::Number(number) => self.left(number) > 0,
            Symbol::Plus | Symbol::Times => true,
        }
    }

    /// Applies an action. The checks have the same order as in gym-cards.
    ///
    /// If the formula is longer than [`MOST_SYMBOLS`], any action except [`Action::Nothing`] ends
    /// the episode and neither changes nor evaluates the formula.
    pub fn act(&mut self, action: Action) -> Outcome {
        if action == Action::Nothing {
            return Outcome::default();
        }
        if self.formula.len() > MOST_SYMBOLS {
            return Outcome { truncated: true, ..Outcome::default() };
        }
        match action {
            Action::Add(symbol) if self.can_add(symbol) => {
                self.formula.push(symbol);
                Outcome { effective: true, ..Outcome::default() }
            }
            Action::Add(_) | Action::Nothing => Outcome::default(),
            Action::Evaluate => {
                let used = self.formula.iter().filter(|symbol| matches!(symbol, Symbol::Number(_))).count();
                let won = used == 2 && eval(&text(&self.formula)) == Some(TARGET);
                let reward = if won { REWARD } else { 0.0 };
                Outcome { reward, terminated: true, truncated: false, effective: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cards::Card;
    use super::*;

    fn play(cards: [&str; 2], actions: &[&str]) -> (String, Outcome) {
        let mut game = Game::new(Deal(cards.map(|name| Card::parse(name).unwrap())));
        let mut last = Outcome::default();
        for action in actions {
            last = game.act(Action::parse(action));
        }
        (text(game.formula()), last)
    }

    #[test]
    fn actions_are_read_by_their_places() {
        let places: Vec<_> = ACTIONS.iter().map(|action| place_of(action)).collect();
        assert_eq!(places, (0..ACTIONS.len()).map(Some).collect::<Vec<_>>());
        for text in ["", "0", "11", "01", "-", "1 0", "==", "a"] {
            assert_eq!(place_of(text), None, "{text}");
        }
        assert_eq!(Action::parse(" 10\n"), Action::Add(Symbol::Number(10)));
    }

    #[test]
    fn formulas_are_built_and_evaluated() {
        let end = |reward| Outcome { reward, terminated: true, truncated: false, effective: true };
        assert_eq!(play(["H4", "C8"], &["4", "+", "8", "="]), ("4+8".into(), end(10.0)));
        assert_eq!(play(["CJ", "D2"], &["10", "+", "2", "="]), ("10+2".into(), end(10.0)));
        assert_eq!(play(["H3", "S4"], &["3", "+", "4", "="]), ("3+4".into(), end(0.0)));
        assert_eq!(play(["H4", "C8"], &["="]), (String::new(), end(0.0)));
        assert_eq!(play(["H6", "C6"], &["6", "+", "6", "6", "="]), ("6+6".into(), end(10.0)));
        assert_eq!(play(["H4", "C8"], &["4", "+", "+", "+", "8", "="]), ("4+++8".into(), end(10.0)));
    }

    #[test]
    fn what_is_no_use_changes_nothing() {
        for action in ["5", "11", "-", "", "10", "1"] {
            assert_eq!(play(["H4", "C8"], &["4", action]), ("4".into(), Outcome::default()), "{action}");
        }
    }

    #[test]
    fn a_formula_that_is_too_long_ends_with_the_next_action() {
        let cut = Outcome { truncated: true, ..Outcome::default() };
        assert!(!play(["H4", "C8"], &["+"; 6]).1.truncated);
        assert_eq!(play(["H4", "C8"], &["+"; 7]), ("++++++".into(), cut));
        assert_eq!(play(["H4", "C8"], &["+", "+", "+", "+", "+", "+", "="]).1, cut);
        assert_eq!(play(["H4", "C8"], &["+", "+", "+", "+", "+", "+", "?"]).1, Outcome::default());
    }
}
