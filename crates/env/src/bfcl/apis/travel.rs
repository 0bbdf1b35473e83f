//! `TravelAPI`: flights, credit cards, insurance, budgets.

use super::routes::{AIRPORTS, CITIES, ROUTES, exchange};
use super::{Class, Fields, LongContext, error};
use crate::python::PythonRandom;
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Dict, Order, Raise, Value, add_in_place, compare, contains, date, dict, float_of, hashable, iterate,
    str_method, subtract_in_place,
};

pub(super) const METHODS: &[Method] = &[
    method(
        "authenticate_travel",
        &[
            required("client_id"),
            required("client_secret"),
            required("refresh_token"),
            required("grant_type"),
            required("user_first_name"),
            required("user_last_name"),
        ],
    ),
    method("travel_get_login_status", &[]),
    method(
        "get_budget_fiscal_year",
        &[optional("lastModifiedAfter", Default::None), optional("includeRemoved", Default::None)],
    ),
    method(
        "register_credit_card",
        &[
            required("access_token"),
            required("card_number"),
            required("expiration_date"),
            required("cardholder_name"),
            required("card_verification_number"),
        ],
    ),
    method(
        "get_flight_cost",
        &[required("travel_from"), required("travel_to"), required("travel_date"), required("travel_class")],
    ),
    method("get_credit_card_balance", &[required("access_token"), required("card_id")]),
    method(
        "book_flight",
        &[
            required("access_token"),
            required("card_id"),
            required("travel_date"),
            required("travel_from"),
            required("travel_to"),
            required("travel_class"),
        ],
    ),
    method(
        "retrieve_invoice",
        &[
            required("access_token"),
            optional("booking_id", Default::None),
            optional("insurance_id", Default::None),
        ],
    ),
    method("get_booking_history", &[required("access_token")]),
    method("list_all_airports", &[]),
    method("cancel_booking", &[required("access_token"), required("booking_id")]),
    method(
        "compute_exchange_rate",
        &[required("base_currency"), required("target_currency"), required("value")],
    ),
    method(
        "verify_traveler_information",
        &[
            required("first_name"),
            required("last_name"),
            required("date_of_birth"),
            required("passport_number"),
        ],
    ),
    method("set_budget_limit", &[required("access_token"), required("budget_limit")]),
    method("get_nearest_airport_by_city", &[required("location")]),
    method(
        "purchase_insurance",
        &[
            required("access_token"),
            required("insurance_type"),
            required("booking_id"),
            required("insurance_cost"),
            required("card_id"),
        ],
    ),
    method("contact_customer_support", &[required("booking_id"), required("message")]),
    method("get_all_credit_cards", &[]),
];

const SEED: u64 = 141_053;

/// Date of all episodes, fixed to make them reproducible; the original uses the current date.
const TODAY: (i64, i64, i64) = (2026, 1, 1);

#[derive(Clone, Debug)]
pub(super) struct Travel {
    random: PythonRandom,
    pub(super) cards: Dict,
    bookings: Dict,
    access_token: Value,
    token_type: Value,
    expires_in: Value,
    scope: Value,
    first_name: Value,
    last_name: Value,
    budget: Value,
    is_long: bool,
}

fn key<'a>(entries: &'a Dict, key: &Value) -> Result<&'a Value, Raise> {
    entries.get(key).ok_or_else(|| Raise::key_error(key))
}

fn field<'a>(entries: &'a Dict, id: &Value, name: &str) -> Result<&'a Value, Raise> {
    let entry = key(entries, id)?;
    entry.as_dict().and_then(|entry| entry.get_str(name)).ok_or_else(|| Raise::key_error(&name.into()))
}

fn refused(status: &str, reason: impl Into<Value>) -> Value {
    let mut refusal = Dict::new();
    if !status.is_empty() {
        refusal.insert(status, false);
    }
    refusal.insert("error", reason);
    refusal.into()
}

impl Travel {
    pub(super) fn new(scenario: &Dict, long: Option<&LongContext>) -> Self {
        let fields = Fields(scenario);
        let (mut cards, mut bookings) = (fields.dict("credit_card_list"), fields.dict("booking_record"));
        if let Some(long) = long {
            for (own, more) in [(&mut cards, &long.cards), (&mut bookings, &long.bookings)] {
                for (id, entry) in more.iter() {
                    if !own.contains(id) {
                        own.insert(id.clone(), entry.clone());
                    }
                }
            }
        }
        Self {
            random: PythonRandom::new(fields.seed(SEED)),
            cards,
            bookings,
            access_token: fields.value("access_token", Value::None),
            token_type: fields.value("token_type", Value::None),
            expires_in: fields.value("token_expires_in", Value::None),
            scope: fields.value("token_scope", Value::None),
            first_name: fields.value("user_first_name", Value::None),
            last_name: fields.value("user_last_name", Value::None),
            budget: fields.value("budget_limit", Value::None),
            is_long: long.is_some(),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("credit_card_list", self.cards.clone().into()),
            ("booking_record", self.bookings.clone().into()),
            ("access_token", self.access_token.clone()),
            ("token_type", self.token_type.clone()),
            ("token_expires_in", self.expires_in.clone()),
            ("token_scope", self.scope.clone()),
            ("user_first_name", self.first_name.clone()),
            ("user_last_name", self.last_name.clone()),
            ("budget_limit", self.budget.clone()),
            ("long_context", self.is_long.into()),
        ]
    }

    pub(super) fn call(&mut self, method: &str, arguments: Arguments) -> Result<Value, Raise> {
        match method {
            "authenticate_travel" => Ok(self.authenticate(arguments.take())),
            "travel_get_login_status" => {
                let is_in = !matches!(self.expires_in, Value::None) && !self.is_expired();
                Ok(dict([("status", is_in.into())]))
            }
            "get_budget_fiscal_year" => Ok(dict([("budget_fiscal_year", "2018".into())])),
            "register_credit_card" => self.register(arguments.take()),
            "get_flight_cost" => self.costs(arguments.take()),
            "get_credit_card_balance" => self.balance(arguments.take()),
            "book_flight" => self.book(arguments.take()),
            "retrieve_invoice" => self.invoice(arguments.take()),
            "get_booking_history" => {
                let [token] = arguments.take();
                Ok(self
                    .denied("", &token)
                    .unwrap_or_else(|| dict([("booking_history", self.bookings.clone().into())])))
            }
            "list_all_airports" => Ok(Value::List(AIRPORTS.map(Value::from).to_vec())),
            "cancel_booking" => self.cancel(arguments.take()),
            "compute_exchange_rate" => exchange(arguments.take()),
            "verify_traveler_information" => self.verify(arguments.take()),
            "set_budget_limit" => {
                let [token, limit] = arguments.take();
                if let Some(denied) = self.denied("", &token) {
                    return Ok(denied);
                }
                self.budget = float_of(&limit)?.into();
                Ok(dict([("budget_limit", self.budget.clone())]))
            }
            "get_nearest_airport_by_city" => {
                let [city] = arguments.take();
                hashable(&city)?;
                let found = CITIES.iter().find(|(name, _)| city.as_str() == Some(name));
                Ok(dict([("nearest_airport", found.map_or("Unknown", |(_, code)| code).into())]))
            }
            "purchase_insurance" => self.insure(arguments.take()),
            "contact_customer_support" => {
                let [booking, _] = arguments.take();
                hashable(&booking)?;
                let text = "Thank you for contacting customer support. Your message has been received and we will get back to you shortly.";
                Ok(if self.bookings.contains(&booking) {
                    dict([("customer_support_message", text.into())])
                } else {
                    error("Booking not found")
                })
            }
            _ => Ok(dict([("credit_card_list", self.cards.clone().into())])),
        }
    }

    fn is_expired(&self) -> bool {
        self.expires_in == Value::Int(0)
    }

    fn denied(&self, status: &str, token: &Value) -> Option<Value> {
        if self.is_expired() {
            Some(refused(status, "Token expired"))
        } else if *token != self.access_token {
            Some(refused(status, "Invalid access token"))
        } else {
            None
        }
    }

    fn draw(&mut self, low: u64, high: u64) -> Value {
        Value::from(self.random.between(low, high).to_string())
    }

    fn authenticate(&mut self, [_, _, _, grant, first, last]: [Value; 6]) -> Value {
        self.expires_in = 2i64.into();
        self.access_token = self.draw(100_000, 999_999);
        self.token_type = "Bearer".into();
        self.scope = grant.clone();
        self.first_name = first;
        self.last_name = last;
        dict([
            ("expires_in", 2i64.into()),
            ("access_token", self.access_token.clone()),
            ("token_type", "Bearer".into()),
            ("scope", grant),
        ])
    }

    fn register(&mut self, [token, number, expiry, holder, code]: [Value; 5]) -> Result<Value, Raise> {
        if matches!(self.expires_in, Value::None) {
            return Ok(error("Token not initialized"));
        }
        if let Some(denied) = self.denied("", &token) {
            return Ok(denied);
        }
        hashable(&number)?;
        if self.cards.contains(&number) {
            return Ok(error("Card already registered"));
        }
        let id = self.draw(100_000_000_000, 999_999_999_999);
        let balance = Value::from(10_000 + self.random.below(90_000));
        let card = dict([
            ("card_number", number),
            ("expiration_date", expiry),
            ("cardholder_name", holder),
            ("card_verification_number", code),
            ("balance", balance),
        ]);
        self.cards.insert(id.clone(), card);
        Ok(dict([("card_id", id)]))
    }

    fn cost(&self, [from, to, day, class]: [&Value; 4]) -> Result<(f64, Vec<f64>), Raise> {
        hashable(from)?;
        hashable(to)?;
        let route =
            ROUTES.iter().find(|(start, end, _)| from.as_str() == Some(start) && to.as_str() == Some(end));
        let Some((_, _, base)) = route else {
            return Err(Raise::value_error("No available route for the given airports."));
        };
        let factor = match class.as_str() {
            Some("economy") => 1.0,
            Some("business") => 2.0,
            Some("first") => 5.0,
            _ => {
                let text = "Invalid travel class. Options are: economy, business, first.";
                return Err(Raise::value_error(text));
            }
        };
        let mut digits = 0;
        for part in iterate(day)? {
            let part = str_method(&part, "isdigit")?;
            if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
                digits += part.parse::<u64>().unwrap_or_default();
            }
        }
        let times = if digits % 2 == 0 { 2.0 } else { 1.0 };
        let cost = |base: u16| f64::from(base) * factor * times;
        let listed = if self.is_long {
            ROUTES.iter().map(|(_, _, base)| cost(*base)).collect()
        } else {
            vec![cost(*base)]
        };
        Ok((cost(*base), listed))
    }

    fn costs(&self, [from, to, day, class]: [Value; 4]) -> Result<Value, Raise> {
        let (_, listed) = self.cost([&from, &to, &day, &class])?;
        let listed: Vec<Value> = listed.into_iter().map(Value::from).collect();
        Ok(dict([("travel_cost_list", listed.into())]))
    }

    fn balance(&self, [token, card]: [Value; 2]) -> Result<Value, Raise> {
        if let Some(denied) = self.denied("", &token) {
            return Ok(denied);
        }
        hashable(&card)?;
        if !self.cards.contains(&card) {
            let known = Value::List(self.cards.keys().cloned().collect());
            return Ok(error(format!("Card not registered. Here are a list of card_id's: {known}")));
        }
        Ok(dict([("card_balance", field(&self.cards, &card, "balance")?.clone())]))
    }

    fn book(&mut self, [token, card, day, from, to, class]: [Value; 6]) -> Result<Value, Raise> {
        let no = |reason: String| Ok(refused("booking_status", reason));
        if let Some(denied) = self.denied("booking_status", &token) {
            return Ok(denied);
        }
        hashable(&card)?;
        let Some(entry) = self.cards.get(&card) else { return no("Card not registered".into()) };
        if !contains(entry, &"balance".into())? {
            return no("Balance not found".into());
        }
        let is_airport = |code: &Value| code.as_str().is_some_and(|code| AIRPORTS.contains(&code));
        if !is_airport(&from) {
            return no(format!("Invalid departure airport code: {from}"));
        }
        if !is_airport(&to) {
            return no(format!("Invalid destination airport code: {to}"));
        }
        match date(&day) {
            Err(raise) if raise.class == Class::Value => {
                return no("Invalid date format. Use YYYY-MM-DD.".into());
            }
            Err(raise) => return Err(raise),
            Ok(_) => {}
        }
        hashable(&class)?;
        if !matches!(class.as_str(), Some("economy" | "business" | "first")) {
            // The original's set has an order that varies between processes.
            return no("Invalid travel class. Must be one of {'economy', 'business', 'first'}".into());
        }
        let cost = match self.cost([&from, &to, &day, &class]) {
            Err(raise) if raise.class == Class::Value => return no(raise.text),
            Err(raise) => return Err(raise),
            Ok((cost, _)) => Value::Float(cost),
        };
        let balance = field(&self.cards, &card, "balance")?;
        if compare(Order::Less, balance, &cost)? {
            return no("Insufficient funds".into());
        }
        if !matches!(self.budget, Value::None) && compare(Order::Less, balance, &self.budget)? {
            return no("Balance is less than budget limit".into());
        }
        let balance = subtract_in_place(balance, &cost)?;
        self.set_balance(&card, balance);
        let booking = self.draw(1_000_000, 9_999_999);
        let transaction = self.draw(10_000_000, 99_999_999);
        let record = dict([
            ("card_id", card),
            ("travel_date", day),
            ("travel_from", from),
            ("travel_to", to),
            ("travel_class", class),
            ("travel_cost", cost),
            ("transaction_id", transaction.clone()),
        ]);
        self.bookings.insert(booking.clone(), record);
        let history = if self.is_long { self.bookings.clone() } else { Dict::new() };
        Ok(dict([
            ("booking_id", booking),
            ("transaction_id", transaction),
            ("booking_status", true.into()),
            ("booking_history", history.into()),
        ]))
    }

    fn set_balance(&mut self, card: &Value, balance: Value) {
        if let Some(Value::Dict(card)) = self.cards.get_mut(card) {
            card.insert("balance", balance);
        }
    }

    fn invoice(&self, [token, booking, _]: [Value; 3]) -> Result<Value, Raise> {
        if let Some(denied) = self.denied("", &token) {
            return Ok(denied);
        }
        hashable(&booking)?;
        if !self.bookings.contains(&booking) {
            return Ok(error("Booking not found"));
        }
        let mut invoice = Dict::new();
        invoice.insert("booking_id", booking.clone());
        for name in
            ["travel_date", "travel_from", "travel_to", "travel_class", "travel_cost", "transaction_id"]
        {
            invoice.insert(name, field(&self.bookings, &booking, name)?.clone());
        }
        Ok(dict([("invoice", invoice.into())]))
    }

    fn cancel(&mut self, [token, booking]: [Value; 2]) -> Result<Value, Raise> {
        if let Some(denied) = self.denied("cancel_status", &token) {
            return Ok(denied);
        }
        hashable(&booking)?;
        if !self.bookings.contains(&booking) {
            return Ok(refused("cancel_status", "Booking not found"));
        }
        let card = field(&self.bookings, &booking, "card_id")?.clone();
        let cost = field(&self.bookings, &booking, "travel_cost")?;
        hashable(&card)?;
        let balance = add_in_place(field(&self.cards, &card, "balance")?, cost)?;
        self.set_balance(&card, balance);
        self.bookings.remove(&booking);
        Ok(dict([("cancel_status", true.into())]))
    }

    fn verify(&self, [first, last, birth, passport]: [Value; 4]) -> Result<Value, Raise> {
        let failure = |text: String| {
            Ok(dict([("verification_status", false.into()), ("verification_failure", text.into())]))
        };
        if self.first_name != first || self.last_name != last {
            return failure(format!(
                "Cannot book flight information for another user.Expected {} {}, got {first} {last}",
                self.first_name, self.last_name
            ));
        }
        let (year, month, day) = match date(&birth) {
            Err(raise) if raise.class == Class::Value => {
                return failure("Invalid date of birth format. Please use YYYY-MM-DD.".into());
            }
            found => found?,
        };
        let age = TODAY.0 - year - i64::from((TODAY.1, TODAY.2) < (month, day));
        if age < 18 {
            return failure("Traveler must be at least 18 years old.".into());
        }
        if !str_method(&passport, "startswith")?.starts_with("US") {
            return failure("Passport must be issued by the United States.".into());
        }
        Ok(dict([("verification_status", true.into())]))
    }

    fn insure(&mut self, [token, _, booking, cost, card]: [Value; 5]) -> Result<Value, Raise> {
        let no = |reason: &str| Ok(refused("insurance_status", reason));
        if let Some(denied) = self.denied("insurance_status", &token) {
            return Ok(denied);
        }
        if !matches!(self.budget, Value::None) && compare(Order::Less, &self.budget, &cost)? {
            return no("Exceeded budget limit");
        }
        hashable(&booking)?;
        if !self.bookings.contains(&booking) {
            return no("Booking not found");
        }
        hashable(&card)?;
        if !self.cards.contains(&card) {
            return no("Credit card not registered");
        }
        let balance = subtract_in_place(field(&self.cards, &card, "balance")?, &cost)?;
        self.set_balance(&card, balance);
        let insurance = self.draw(100_000_000, 999_999_999);
        Ok(dict([("insurance_id", insurance), ("insurance_status", true.into())]))
    }
}
