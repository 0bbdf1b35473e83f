//! A user request for one turn.

use turnwise_core::Rng;

use crate::python::values::{Dict, Value};

#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) says: String,
    /// For tasks with a missing value: a message that omits a needed value, and the message that
    /// supplies it later.
    pub(super) vague: Option<[String; 2]>,
    pub(super) calls: Vec<Call>,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) text: String,
    /// Whether the call is a gold call; false for a lookup, because the model may find the value by
    /// other calls.
    pub(super) is_graded: bool,
}

impl Request {
    pub(super) fn new(says: impl Into<String>) -> Self {
        Self { says: says.into(), ..Self::default() }
    }

    pub(super) fn call<const N: usize>(self, name: &'static str, arguments: [(&str, Value); N]) -> Self {
        self.with(name, arguments, true)
    }

    pub(super) fn lookup<const N: usize>(self, name: &'static str, arguments: [(&str, Value); N]) -> Self {
        self.with(name, arguments, false)
    }

    pub(super) fn vaguely(mut self, says: impl Into<String>, answer: impl Into<String>) -> Self {
        self.vague = Some([says.into(), answer.into()]);
        self
    }

    fn with<const N: usize>(
        mut self,
        name: &'static str,
        arguments: [(&str, Value); N],
        is_graded: bool,
    ) -> Self {
        let arguments = arguments.map(|(name, value)| format!("{name}={}", value.repr()));
        let text = format!("{name}({})", arguments.join(", "));
        self.calls.push(Call { name, text, is_graded });
        self
    }

    pub(super) fn has_lookups(&self) -> bool {
        self.calls.iter().any(|call| !call.is_graded)
    }
}

/// Start state of an API, and requests to the API that do not depend on each other.
pub(super) struct Scene {
    pub(super) config: Dict,
    pub(super) requests: Vec<Request>,
}

pub(super) struct Draw(pub(super) Rng);

impl Draw {
    pub(super) fn word(&mut self, words: &[&'static str]) -> &'static str {
        self.0.choose(words).copied().unwrap_or_default()
    }

    pub(super) fn words<const N: usize>(&mut self, words: &[&'static str]) -> [&'static str; N] {
        let mut words = words.to_vec();
        self.0.shuffle(&mut words);
        let mut words = words.into_iter();
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    pub(super) fn number(&mut self, low: i64, high: i64) -> i64 {
        let span = usize::try_from(high - low + 1).unwrap_or(1);
        low + i64::try_from(self.0.below(span)).unwrap_or_default()
    }

    pub(super) fn numbers<const N: usize>(&mut self, low: i64, high: i64) -> [i64; N] {
        let mut drawn = [low - 1; N];
        for place in 0..N {
            while drawn[place] < low || drawn[..place].contains(&drawn[place]) {
                drawn[place] = self.number(low, high);
            }
        }
        drawn
    }

    pub(super) fn sentence(&mut self) -> String {
        let [subject] = self.words(&TOPICS);
        format!(
            "the {subject} is {} {}",
            self.word(&["nearly", "almost", "not", "now", "still"]),
            self.word(&STATES)
        )
    }
}

pub(super) const TOPICS: [&str; 40] = [
    "budget", "garden", "kitchen", "invoice", "meeting", "holiday", "project", "printer", "server", "window",
    "bridge", "library", "harvest", "concert", "festival", "picnic", "workshop", "lecture", "recipe",
    "journal", "letter", "orchard", "harbour", "museum", "theatre", "station", "market", "bakery", "stadium",
    "forest", "castle", "island", "desert", "river", "valley", "tower", "tunnel", "ladder", "engine",
    "carpet",
];

const STATES: [&str; 12] = [
    "ready", "late", "open", "closed", "finished", "broken", "empty", "full", "clean", "safe", "new", "cheap",
];

pub(super) const NAMES: [&str; 30] = [
    "Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gina", "Hugo", "Iris", "Jan", "Kira", "Leo", "Mia", "Nils",
    "Olga", "Paul", "Rosa", "Sven", "Tara", "Uma", "Vera", "Will", "Yara", "Zoe", "Emil", "Lotte", "Max",
    "Nina", "Otto", "Pia",
];

pub(super) const CITIES: [&str; 10] = [
    "Rivermist",
    "Stonebrook",
    "Maplecrest",
    "Silverpine",
    "Shadowridge",
    "Sunset Valley",
    "Oakendale",
    "Willowbend",
    "Crescent Hollow",
    "Autumnville",
];

pub(super) fn texts<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::List(items.into_iter().map(Into::into).collect())
}
