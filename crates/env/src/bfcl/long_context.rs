//! Padding of the `long_context` tasks, read from the package.

use crate::python::values::{Caller, Class, Dict, Raise, Value, assignments, evaluate};

/// Padding of states and results.
#[derive(Clone, Debug, Default)]
pub struct LongContext {
    /// Text appended to files.
    pub file_content: String,
    /// Names of the files to which no text is appended.
    pub kept_files: Vec<Value>,
    /// Names of empty files to add to each directory without subdirectories.
    pub more_files: Vec<Value>,
    /// Stocks appended to the watchlist.
    pub watched: Vec<Value>,
    /// Transactions appended to the history.
    pub transactions: Vec<Value>,
    /// 5-day average price shown for every stock instead of its own.
    pub averages_5: Value,
    /// 20-day average price shown for every stock instead of its own.
    pub averages_20: Value,
    /// Stocks appended to the technology and to the automobile sector.
    pub sectors: [Vec<Value>; 2],
    /// Metadata added to an order's details: texts about its stock, with the placeholder
    /// `{symbol}`.
    pub order_details: Dict,
    /// The car's metadata.
    pub car: Value,
    /// Weather data added to the reported outside temperature.
    pub weather: Dict,
    /// Parking brake instructions.
    pub parking_brake: Value,
    /// Intermediate cities that lengthen the result of every distance query.
    pub cities: Value,
    /// Credit cards.
    pub cards: Dict,
    /// Bookings.
    pub bookings: Dict,
}

struct Nothing;

impl Caller for Nothing {
    fn find(&self, object: &str, _: &str) -> Result<(), Raise> {
        Err(Raise::new(Class::Name, format!("name '{object}' is not defined")))
    }

    fn call(
        &mut self,
        _: &str,
        method: &str,
        _: Vec<Value>,
        _: Vec<(String, Value)>,
    ) -> Result<Value, Raise> {
        Err(Raise::new(Class::Name, format!("name '{method}' is not defined")))
    }
}

impl LongContext {
    /// Parses the package's module of padding constants.
    ///
    /// # Errors
    /// Fails if the module cannot be parsed or lacks a constant.
    pub fn read(source: &str) -> Result<Self, String> {
        let mut constants = Dict::new();
        for (name, expression) in assignments(source).map_err(|raise| raise.text)? {
            let value =
                evaluate(expression, &mut Nothing).map_err(|raise| format!("{name}: {}", raise.text))?;
            constants.insert(name, value);
        }
        let mut take = |name: &str| {
            constants.remove(&name.into()).ok_or_else(|| format!("the constant `{name}` is missing"))
        };
        Ok(Self {
            file_content: take("FILE_CONTENT_EXTENSION")?.to_string(),
            kept_files: list(take("FILES_TAIL_USED")?),
            more_files: list(take("POPULATE_FILE_EXTENSION")?),
            watched: list(take("WATCH_LIST_EXTENSION")?),
            transactions: list(take("TRANSACTION_HISTORY_EXTENSION")?),
            averages_5: take("MA_5_EXTENSION")?,
            averages_20: take("MA_20_EXTENSION")?,
            sectors: [list(take("TECHNOLOGY_EXTENSION")?), list(take("AUTOMOBILE_EXTENSION")?)],
            order_details: entries(take("ORDER_DETAIL_EXTENSION")?),
            car: take("CAR_STATUS_METADATA_EXTENSION")?,
            weather: entries(take("LONG_WEATHER_EXTENSION")?),
            parking_brake: take("PARKING_BRAKE_INSTRUCTION")?,
            cities: take("INTERMEDIARY_CITIES")?,
            cards: entries(take("CREDIT_CARD_EXTENSION")?),
            bookings: entries(take("BOOKING_RECORD_EXTENSION")?),
        })
    }
}

fn list(value: Value) -> Vec<Value> {
    if let Value::List(items) = value { items } else { Vec::new() }
}

fn entries(value: Value) -> Dict {
    if let Value::Dict(dict) = value { dict } else { Dict::new() }
}
