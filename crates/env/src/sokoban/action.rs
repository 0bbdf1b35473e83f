//! Parses actions.

use serde::{Deserialize, Serialize};

use super::room::Direction;

/// A parsed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `up`, `down`, `left` or `right`.
    Move(Direction),
    /// `still`, which does nothing.
    Still,
    /// Any other text, treated as `still`.
    Other,
}

/// How actions are parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionReading {
    /// The text must be one of the five action words, in upper or lower case. Surrounding spaces
    /// are ignored.
    #[default]
    Exact,
    /// As in verl-agent, the text means the first of `up`, `down`, `left`, `right`, `still` that it
    /// contains: `upright` is `up`, and `do not go down` is `down`.
    VerlAgent,
}

impl Action {
    /// Parses an action.
    pub fn parse(text: &str, reading: ActionReading) -> Self {
        let text = text.trim();
        let is = |word: &str| match reading {
            ActionReading::Exact => text.eq_ignore_ascii_case(word),
            ActionReading::VerlAgent => contains_ignore_case(text, word),
        };
        let direction = Direction::ALL.into_iter().find(|direction| is(direction.word()));
        match direction {
            Some(direction) => Self::Move(direction),
            None if is("still") => Self::Still,
            None => Self::Other,
        }
    }
}

fn contains_ignore_case(text: &str, word: &str) -> bool {
    if text.is_ascii() {
        let fits = |window: &[u8]| window.eq_ignore_ascii_case(word.as_bytes());
        return text.as_bytes().windows(word.len()).any(fits);
    }
    text.to_lowercase().contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_whole_or_found_in_the_text() {
        use Direction::{Down, Left, Right, Up};
        for (text, exact, verl) in [
            ("up", Action::Move(Up), Action::Move(Up)),
            (" Left\n", Action::Move(Left), Action::Move(Left)),
            ("upright", Action::Other, Action::Move(Up)),
            ("right or left", Action::Other, Action::Move(Left)),
            ("RIGHT!", Action::Other, Action::Move(Right)),
            ("do not go down", Action::Other, Action::Move(Down)),
            ("still", Action::Still, Action::Still),
            ("distilled", Action::Other, Action::Still),
            ("jump", Action::Other, Action::Other),
            ("é DOWN", Action::Other, Action::Move(Down)),
            ("", Action::Other, Action::Other),
        ] {
            assert_eq!(Action::parse(text, ActionReading::Exact), exact, "{text}");
            assert_eq!(Action::parse(text, ActionReading::VerlAgent), verl, "{text}");
        }
    }
}
