//! The eight APIs.

mod files;
mod maths;
mod messages;
mod posting;
mod precise;
mod routes;
mod stocks;
mod tickets;
mod trading;
mod travel;
mod tree;
mod vehicle;

pub(super) use stocks::SYMBOLS;

use super::long_context::LongContext;
use crate::python::method::{Arguments, Method};
use crate::python::values::{Class, Dict, Raise, Value, dict};

/// An API.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// A file system.
    Files,
    /// Stateless arithmetic and conversions.
    Maths,
    /// Messages in a workspace.
    Messages,
    /// Posts.
    Posting,
    /// Support tickets.
    Tickets,
    /// Stock trading with an account.
    Trading,
    /// Flight bookings and credit cards.
    Travel,
    /// A car.
    Vehicle,
}

impl Api {
    /// All APIs.
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::Maths,
        Self::Messages,
        Self::Posting,
        Self::Tickets,
        Self::Trading,
        Self::Travel,
        Self::Vehicle,
    ];

    /// Returns the name of the API's Python class in the package.
    pub fn class(self) -> &'static str {
        match self {
            Self::Files => "GorillaFileSystem",
            Self::Maths => "MathAPI",
            Self::Messages => "MessageAPI",
            Self::Posting => "TwitterAPI",
            Self::Tickets => "TicketAPI",
            Self::Trading => "TradingBot",
            Self::Travel => "TravelAPI",
            Self::Vehicle => "VehicleControlAPI",
        }
    }

    /// Finds an API by the name of its Python class.
    pub(crate) fn of_class(class: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.class() == class)
    }

    /// Returns the name of the API's file in the package's folder `multi_turn_func_doc`.
    pub fn document(self) -> &'static str {
        match self {
            Self::Files => "gorilla_file_system.json",
            Self::Maths => "math_api.json",
            Self::Messages => "message_api.json",
            Self::Posting => "posting_api.json",
            Self::Tickets => "ticket_api.json",
            Self::Trading => "trading_bot.json",
            Self::Travel => "travel_booking.json",
            Self::Vehicle => "vehicle_control.json",
        }
    }

    /// Returns the methods that models may call.
    pub fn methods(self) -> &'static [Method] {
        match self {
            Self::Files => files::METHODS,
            Self::Maths => maths::METHODS,
            Self::Messages => messages::METHODS,
            Self::Posting => posting::METHODS,
            Self::Tickets => tickets::METHODS,
            Self::Trading => trading::METHODS,
            Self::Travel => travel::METHODS,
            Self::Vehicle => vehicle::METHODS,
        }
    }

    /// Finds a method.
    pub fn method(self, name: &str) -> Option<&'static Method> {
        self.methods().iter().find(|method| method.name == name)
    }
}

/// An API with its state.
#[derive(Clone, Debug)]
pub struct Instance(State);

#[derive(Clone, Debug)]
enum State {
    Files(files::Files),
    Maths,
    Messages(Box<messages::Messages>),
    Posting(posting::Posting),
    Tickets(tickets::Tickets),
    Trading(Box<trading::Trading>),
    Travel(Box<travel::Travel>),
    Vehicle(Box<vehicle::Vehicle>),
}

impl Instance {
    /// Creates an API in the start state that the scenario describes. `long` is the padding for
    /// `long_context` tasks; `None` adds no padding.
    pub fn new(api: Api, scenario: &Dict, long: Option<&LongContext>) -> Self {
        Self(match api {
            Api::Files => State::Files(files::Files::new(scenario, long)),
            Api::Maths => State::Maths,
            Api::Messages => State::Messages(Box::new(messages::Messages::new(scenario))),
            Api::Posting => State::Posting(posting::Posting::new(scenario)),
            Api::Tickets => State::Tickets(tickets::Tickets::new(scenario)),
            Api::Trading => State::Trading(Box::new(trading::Trading::new(scenario, long))),
            Api::Travel => State::Travel(Box::new(travel::Travel::new(scenario, long))),
            Api::Vehicle => State::Vehicle(Box::new(vehicle::Vehicle::new(scenario, long))),
        })
    }

    /// Calls a method.
    ///
    /// # Errors
    /// Returns the exception that the method raises, or an `AttributeError` for an unknown method.
    pub fn call(
        &mut self,
        method: &str,
        arguments: Vec<Value>,
        keywords: Vec<(String, Value)>,
        long: Option<&LongContext>,
    ) -> Result<Value, Raise> {
        let api = self.api();
        let Some(found) = api.method(method) else {
            let text = format!("'{}' object has no attribute '{method}'", api.class());
            return Err(Raise::new(Class::Attribute, text));
        };
        let arguments: Arguments = found.bind(api.class(), arguments, keywords)?;
        match &mut self.0 {
            State::Files(files) => files.call(method, arguments),
            State::Maths => maths::call(method, arguments),
            State::Messages(messages) => messages.call(method, arguments),
            State::Posting(posting) => posting.call(method, arguments),
            State::Tickets(tickets) => tickets.call(method, arguments),
            State::Trading(trading) => trading.call(method, arguments, long),
            State::Travel(travel) => travel.call(method, arguments),
            State::Vehicle(vehicle) => vehicle.call(method, arguments, long),
        }
    }

    /// Returns the API.
    pub fn api(&self) -> Api {
        match self.0 {
            State::Files(_) => Api::Files,
            State::Maths => Api::Maths,
            State::Messages(_) => Api::Messages,
            State::Posting(_) => Api::Posting,
            State::Tickets(_) => Api::Tickets,
            State::Trading(_) => Api::Trading,
            State::Travel(_) => Api::Travel,
            State::Vehicle(_) => Api::Vehicle,
        }
    }

    /// Returns the API object's public attributes, which the grader compares.
    pub fn state(&self) -> Vec<(&'static str, Value)> {
        match &self.0 {
            State::Files(files) => files.state(),
            State::Maths => Vec::new(),
            State::Messages(messages) => messages.state(),
            State::Posting(posting) => posting.state(),
            State::Tickets(tickets) => tickets.state(),
            State::Trading(trading) => trading.state(),
            State::Travel(travel) => travel.state(),
            State::Vehicle(vehicle) => vehicle.state(),
        }
    }

    pub(super) fn adopt(&mut self, leftovers: &Leftovers) {
        match &mut self.0 {
            State::Posting(posting) => posting.default_mentions.clone_from(&leftovers.mentions),
            State::Travel(travel) => {
                for (id, card) in leftovers.cards.iter() {
                    if let Some(known) = travel.cards.get_mut(id) {
                        known.clone_from(card);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn leave(&self, leftovers: &mut Leftovers, scenario: &Dict, long: Option<&LongContext>) {
        match (&self.0, long) {
            (State::Posting(posting), _) => leftovers.mentions.clone_from(&posting.default_mentions),
            (State::Travel(travel), Some(long)) => {
                let own = Fields(scenario).dict("credit_card_list");
                for id in long.cards.keys().filter(|id| !own.contains(id)) {
                    if let Some(card) = travel.cards.get(id) {
                        leftovers.cards.insert(id.clone(), card.clone());
                    }
                }
            }
            _ => {}
        }
    }
}

/// Changes to objects that the original shares between all episodes of a process. Replays carry the
/// changed objects over to the next episode; normal episodes start with unchanged objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers {
    mentions: Vec<Value>,
    cards: Dict,
}

#[derive(Clone, Copy)]
struct Fields<'a>(&'a Dict);

impl Fields<'_> {
    const EMPTY: &'static Dict = &Dict::new();

    fn value(self, name: &str, default: impl Into<Value>) -> Value {
        self.0.get_str(name).cloned().unwrap_or_else(|| default.into())
    }

    fn list(self, name: &str) -> Vec<Value> {
        self.list_or(name, Vec::new)
    }

    fn list_or(self, name: &str, default: impl FnOnce() -> Vec<Value>) -> Vec<Value> {
        self.0.get_str(name).and_then(Value::as_list).map_or_else(default, <[Value]>::to_vec)
    }

    fn dict(self, name: &str) -> Dict {
        self.dict_or(name, Dict::new)
    }

    fn dict_or(self, name: &str, default: impl FnOnce() -> Dict) -> Dict {
        self.0.get_str(name).and_then(Value::as_dict).cloned().unwrap_or_else(default)
    }

    fn seed(self, default: u64) -> u64 {
        match self.0.get_str("random_seed") {
            Some(Value::Int(seed)) => seed.unsigned_abs(),
            _ => default,
        }
    }
}

fn error(text: impl Into<Value>) -> Value {
    dict([("error", text.into())])
}
