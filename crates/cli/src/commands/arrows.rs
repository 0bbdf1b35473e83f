//! Arrow keys as actions in environments with directions.

use std::sync::{Arc, Mutex, PoisonError};

use rustyline::{
    Cmd, ConditionalEventHandler, Editor, Event, EventContext, EventHandler, Helper, KeyCode, KeyEvent,
    Modifiers, RepeatCount, history::History,
};

/// Key, last letter of its escape sequence, and action.
const KEYS: [(KeyCode, char, &str); 4] = [
    (KeyCode::Up, 'A', "up"),
    (KeyCode::Down, 'B', "down"),
    (KeyCode::Right, 'C', "right"),
    (KeyCode::Left, 'D', "left"),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Arrows {
    actions: Arc<Mutex<Vec<String>>>,
    pressed: Arc<Mutex<Option<&'static str>>>,
}

impl Arrows {
    /// Binds the arrow keys: on an empty line, a key submits its action if that action is
    /// available.
    pub(crate) fn bind<H: Helper, I: History>(&self, editor: &mut Editor<H, I>) {
        for (code, _, word) in KEYS {
            let key = Event::from(KeyEvent(code, Modifiers::NONE));
            let handler = Arrow { word, arrows: self.clone() };
            editor.bind_sequence(key, EventHandler::Conditional(Box::new(handler)));
        }
    }

    pub(crate) fn offer(&self, actions: &[String]) {
        *self.actions.lock().unwrap_or_else(PoisonError::into_inner) = actions.to_vec();
    }

    pub(crate) fn take(&self) -> Option<&'static str> {
        self.pressed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) fn of_line(line: &str, actions: &[String]) -> Option<&'static str> {
    let key = line.trim().strip_prefix("\x1b[").or_else(|| line.trim().strip_prefix("\x1bO"))?;
    let (_, _, word) = KEYS.into_iter().find(|(_, end, _)| key.chars().eq([*end]))?;
    actions.iter().any(|action| action == word).then_some(word)
}

struct Arrow {
    word: &'static str,
    arrows: Arrows,
}

impl ConditionalEventHandler for Arrow {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let actions = self.arrows.actions.lock().unwrap_or_else(PoisonError::into_inner);
        if !context.line().is_empty() || !actions.iter().any(|action| action == self.word) {
            return None;
        }
        *self.arrows.pressed.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.word);
        Some(Cmd::AcceptLine)
    }
}

#[cfg(test)]
mod tests {
    use super::of_line;

    #[test]
    fn arrows_are_actions_where_there_are_such_actions() {
        let directions = ["up", "down", "left", "right"].map(String::from);
        for (line, word) in
            [("\x1b[A\n", "up"), ("\x1bOB", "down"), ("\x1b[C", "right"), (" \x1b[D\r\n", "left")]
        {
            assert_eq!(of_line(line, &directions), Some(word), "{line:?}");
            assert_eq!(of_line(line, &["look".to_owned()]), None);
        }
        for line in ["up", "\x1b[E", "\x1b[AA", "[A", ""] {
            assert_eq!(of_line(line, &directions), None, "{line:?}");
        }
    }
}
