//! `TradingBot`: stocks, orders, a watchlist and an account.

use super::stocks::{self, SECTORS, SYMBOLS};
use super::{Fields, LongContext, error};
use crate::python::PythonRandom;
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{
    Dict, Order, Raise, Value, abs, add_in_place, compare, date, dict, float_of, hashable, int_of, iterate,
    lower, multiply, str_method, subtract_in_place, two_decimals,
};

pub(super) const METHODS: &[Method] = &[
    method("get_current_time", &[]),
    method("get_symbol_by_name", &[required("name")]),
    method("get_stock_info", &[required("symbol")]),
    method("get_order_details", &[required("order_id")]),
    method("cancel_order", &[required("order_id")]),
    method(
        "place_order",
        &[required("order_type"), required("symbol"), required("price"), required("amount")],
    ),
    method("withdraw_funds", &[required("amount")]),
    method("get_account_info", &[]),
    method("trading_login", &[required("username"), required("password")]),
    method("trading_get_login_status", &[]),
    method("trading_logout", &[]),
    method("fund_account", &[required("amount")]),
    method("remove_stock_from_watchlist", &[required("symbol")]),
    method("get_watchlist", &[]),
    method("get_order_history", &[]),
    method(
        "get_transaction_history",
        &[optional("start_date", Default::None), optional("end_date", Default::None)],
    ),
    method("get_available_stocks", &[required("sector")]),
    method("filter_stocks_by_price", &[required("stocks"), required("min_price"), required("max_price")]),
    method("add_to_watchlist", &[required("stock")]),
    method("notify_price_change", &[required("stocks"), required("threshold")]),
];

const SEED: u64 = 1_053_520;

/// Start of the 24-hour trading day, in seconds after midnight.
const OPENING: usize = (10 * 60 + 30) * 60;
const DAY: usize = 86_400;

#[derive(Clone, Debug)]
pub(super) struct Trading {
    random: PythonRandom,
    orders: Dict,
    account: Dict,
    authenticated: Value,
    market: Value,
    counter: Value,
    stocks: Dict,
    watched: Vec<Value>,
    transactions: Vec<Value>,
    is_long: bool,
}

fn field<'a>(entry: &'a Value, name: &str) -> Result<&'a Value, Raise> {
    match entry {
        Value::Dict(entry) => entry.get_str(name).ok_or_else(|| Raise::key_error(&name.into())),
        // Some scenarios have strings as orders.
        Value::Str(_) => Err(Raise::type_error("string indices must be integers, not 'str'")),
        _ => Err(Raise::type_error(format!("'{}' object is not subscriptable", entry.type_name()))),
    }
}

impl Trading {
    pub(super) fn new(scenario: &Dict, long: Option<&LongContext>) -> Self {
        let fields = Fields(scenario);
        let orders = fields.dict_or("orders", stocks::default_orders).into_iter().map(|(id, order)| {
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let id = if id.as_str().is_some_and(is_number) { int_of(&id).unwrap_or(id) } else { id };
            (id, order)
        });
        Self {
            random: PythonRandom::new(fields.seed(SEED)),
            orders: orders.collect(),
            account: fields.dict_or("account_info", stocks::default_account),
            authenticated: fields.value("authenticated", false),
            market: fields.value("market_status", "Closed"),
            counter: fields.value("order_counter", 12_446i64),
            stocks: fields.dict_or("stocks", stocks::default_stocks),
            watched: fields.list_or("watch_list", || vec!["NVDA".into()]),
            transactions: fields.list("transaction_history"),
            is_long: long.is_some(),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("orders", self.orders.clone().into()),
            ("account_info", self.account.clone().into()),
            ("authenticated", self.authenticated.clone()),
            ("market_status", self.market.clone()),
            ("order_counter", self.counter.clone()),
            ("stocks", self.stocks.clone().into()),
            ("watch_list", self.watched.clone().into()),
            ("transaction_history", self.transactions.clone().into()),
            ("long_context", self.is_long.into()),
        ]
    }

    fn refusal(&self, method: &str) -> Option<Value> {
        if self.authenticated.is_true() {
            return None;
        }
        let text = |what: &str| format!("User not authenticated. Please log in to {what}.");
        Some(match method {
            "place_order" => error(text("place an order")),
            "withdraw_funds" => error(text("make a transaction")),
            "get_account_info" => error(text("view account information")),
            "fund_account" => error(text("fund the account")),
            "remove_stock_from_watchlist" => error(text("modify the watchlist")),
            "get_watchlist" => Value::List(vec![format!("Error: {}", text("view the watchlist")).into()]),
            "get_order_history" => Value::List(vec![error(text("view order history"))]),
            "get_transaction_history" => Value::List(vec![error(text("view transaction history"))]),
            _ => return None,
        })
    }

    pub(super) fn call(
        &mut self,
        method: &str,
        arguments: Arguments,
        long: Option<&LongContext>,
    ) -> Result<Value, Raise> {
        if let Some(refusal) = self.refusal(method) {
            return Ok(refusal);
        }
        match method {
            "get_current_time" => Ok(dict([("current_time", "10:30 AM".into())])),
            "get_symbol_by_name" => {
                let [name] = arguments.take();
                hashable(&name)?;
                let found = SYMBOLS.iter().find(|(known, _)| name.as_str() == Some(known));
                Ok(dict([("symbol", found.map_or("Stock not found", |(_, symbol)| symbol).into())]))
            }
            "get_stock_info" => self.stock(arguments.take(), long),
            "get_order_details" => self.order(arguments.take(), long),
            "cancel_order" => self.cancel(arguments.take()),
            "place_order" => self.place(arguments.take()),
            "withdraw_funds" => self.withdraw(arguments.take()),
            "get_account_info" => Ok(self.account.clone().into()),
            "trading_login" => {
                let already = self.authenticated.is_true();
                if !already {
                    self.authenticated = true.into();
                }
                let text = if already { "Already logged in" } else { "Logged in successfully" };
                Ok(dict([("status", text.into())]))
            }
            "trading_get_login_status" => Ok(dict([("status", self.authenticated.is_true().into())])),
            "trading_logout" => {
                let was_in = self.authenticated.is_true();
                if was_in {
                    self.authenticated = false.into();
                }
                let text = if was_in { "Logged out successfully" } else { "No user is currently logged in" };
                Ok(dict([("status", text.into())]))
            }
            "fund_account" => self.fund(arguments.take()),
            "remove_stock_from_watchlist" => {
                let [symbol] = arguments.take();
                let Some(place) = self.watched.iter().position(|known| *known == symbol) else {
                    return Ok(error(format!("Stock {symbol} not found in watchlist.")));
                };
                self.watched.remove(place);
                Ok(dict([("status", format!("Stock {symbol} removed from watchlist successfully.").into())]))
            }
            "get_watchlist" => Ok(match long {
                Some(long) => [self.watched.as_slice(), &long.watched].concat().into(),
                None => dict([("watchlist", self.watched.clone().into())]),
            }),
            "get_order_history" => {
                Ok(dict([("history", Value::List(self.orders.keys().cloned().collect()))]))
            }
            "get_transaction_history" => self.history(arguments.take(), long),
            "get_available_stocks" => available(arguments.take(), long),
            "filter_stocks_by_price" => self.filter(arguments.take()),
            "add_to_watchlist" => {
                let [stock] = arguments.take();
                if !self.watched.contains(&stock) {
                    hashable(&stock)?;
                    if self.stocks.contains(&stock) {
                        self.watched.push(stock);
                    }
                }
                Ok(dict([("watchlist", self.watched.clone().into())]))
            }
            _ => self.notify(arguments.take()),
        }
    }

    fn moment(&mut self) -> Value {
        let seconds = OPENING + self.random.below(DAY + 1);
        let (day, rest) = (1 + seconds / DAY, seconds % DAY);
        format!("2024-09-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60).into()
    }

    fn stock(&self, [symbol]: [Value; 1], long: Option<&LongContext>) -> Result<Value, Raise> {
        hashable(&symbol)?;
        let Some(stock) = self.stocks.get(&symbol) else {
            return Ok(error(format!("Stock with symbol '{symbol}' not found.")));
        };
        let mut stock = stock.clone();
        if let (Some(long), Value::Dict(stock)) = (long, &mut stock) {
            stock.insert("MA(5)", long.averages_5.clone());
            stock.insert("MA(20)", long.averages_20.clone());
        }
        Ok(stock)
    }

    fn order(&self, [id]: [Value; 1], long: Option<&LongContext>) -> Result<Value, Raise> {
        hashable(&id)?;
        let Some(order) = self.orders.get(&id) else {
            let known = Value::List(self.orders.keys().cloned().collect());
            return Ok(error(format!("Order with ID {id} not found.Here is the list of orders_id: {known}")));
        };
        let mut order = order.clone();
        if let Some(long) = long {
            if !matches!(order, Value::Dict(_)) {
                return Err(Raise::no_attribute(&order, "copy"));
            }
            let symbol = field(&order, "symbol")?.to_string();
            let mut metadata = Dict::new();
            for (name, text) in long.order_details.iter() {
                metadata.insert(name.clone(), text.to_string().replace("{symbol}", &symbol));
            }
            if let Value::Dict(order) = &mut order {
                order.insert("metadata", metadata);
            }
        }
        Ok(order)
    }

    fn cancel(&mut self, [id]: [Value; 1]) -> Result<Value, Raise> {
        hashable(&id)?;
        let Some(order) = self.orders.get_mut(&id) else {
            return Ok(error(format!("Order with ID {id} not found.")));
        };
        if field(order, "status")?.as_str() == Some("Completed") {
            return Ok(error(format!("Can't cancel order {id}. Order is already completed.")));
        }
        if let Value::Dict(order) = order {
            order.insert("status", "Cancelled");
        }
        Ok(dict([("order_id", id), ("status", "Cancelled".into())]))
    }

    fn place(&mut self, [kind, symbol, price, amount]: [Value; 4]) -> Result<Value, Raise> {
        hashable(&symbol)?;
        if !self.stocks.contains(&symbol) {
            return Ok(error(format!("Invalid stock symbol: {symbol}")));
        }
        let zero = Value::Int(0);
        if compare(Order::LessEqual, &price, &zero)? || compare(Order::LessEqual, &amount, &zero)? {
            return Ok(error("Price and amount must be positive values."));
        }
        if lower(str_method(&kind, "lower")?) == "buy" {
            let cost = multiply(&float_of(&price)?.into(), &int_of(&amount)?)?;
            let balance = self.account.get_str("balance").cloned().unwrap_or(zero);
            if compare(Order::Greater, &cost, &balance)? {
                let [cost, balance] = [two_decimals(float_of(&cost)?), two_decimals(float_of(&balance)?)];
                return Ok(error(format!(
                    "Insufficient funds: required ${cost} but only ${balance} available."
                )));
            }
        }
        let price = Value::Float(float_of(&price)?);
        let id = self.counter.clone();
        let order = dict([
            ("id", id.clone()),
            ("order_type", kind.clone()),
            ("symbol", symbol),
            ("price", price.clone()),
            ("amount", amount.clone()),
            ("status", "Open".into()),
        ]);
        self.orders.insert(id.clone(), order);
        self.counter = add_in_place(&self.counter, &Value::Int(1))?;
        Ok(dict([
            ("order_id", id),
            ("order_type", kind),
            ("status", "Pending".into()),
            ("price", price),
            ("amount", amount),
        ]))
    }

    fn own_balance(&self) -> Result<&Value, Raise> {
        self.account.get_str("balance").ok_or_else(|| Raise::key_error(&"balance".into()))
    }

    fn book(&mut self, balance: Value, kind: &str, amount: Value, text: &str) -> Value {
        self.account.insert("balance", balance.clone());
        let timestamp = self.moment();
        self.transactions.push(dict([("type", kind.into()), ("amount", amount), ("timestamp", timestamp)]));
        dict([("status", text.into()), ("new_balance", balance)])
    }

    fn withdraw(&mut self, [amount]: [Value; 1]) -> Result<Value, Raise> {
        if self.market.as_str() != Some("Open") {
            return Ok(error("Market is closed. Transactions are not allowed."));
        }
        if compare(Order::LessEqual, &amount, &Value::Int(0))? {
            return Ok(error("Transaction amount must be positive."));
        }
        if compare(Order::Greater, &amount, self.own_balance()?)? {
            return Ok(error("Insufficient funds for withdrawal."));
        }
        let balance = subtract_in_place(self.own_balance()?, &amount)?;
        Ok(self.book(balance, "withdrawal", amount, "Withdrawal successful"))
    }

    fn fund(&mut self, [amount]: [Value; 1]) -> Result<Value, Raise> {
        if compare(Order::LessEqual, &amount, &Value::Int(0))? {
            return Ok(error("Funding amount must be positive."));
        }
        let balance = add_in_place(self.own_balance()?, &amount)?;
        Ok(self.book(balance, "deposit", amount, "Account funded successfully"))
    }

    fn history(&self, [start, end]: [Value; 2], long: Option<&LongContext>) -> Result<Value, Raise> {
        let limit = |value: &Value| if value.is_true() { date(value).map(Some) } else { Ok(None) };
        let (start, end) = (limit(&start)?, limit(&end)?);
        let mut found = Vec::new();
        for transaction in &self.transactions {
            let moment = stocks::moment(field(transaction, "timestamp")?)?;
            let midnight = |(year, month, day)| (year, month, day, 0);
            if start.is_none_or(|start| midnight(start) <= moment)
                && end.is_none_or(|end| moment <= midnight(end))
            {
                found.push(transaction.clone());
            }
        }
        if let Some(long) = long {
            found.extend_from_slice(&long.transactions);
        }
        Ok(dict([("transaction_history", found.into())]))
    }

    fn price(&self, symbol: &Value) -> Result<Value, Raise> {
        hashable(symbol)?;
        let price = self.stocks.get(symbol).and_then(Value::as_dict).and_then(|stock| stock.get_str("price"));
        Ok(price.cloned().unwrap_or(Value::Int(0)))
    }

    fn filter(&self, [stocks, low, high]: [Value; 3]) -> Result<Value, Raise> {
        let mut found = Vec::new();
        for symbol in iterate(&stocks)? {
            let price = self.price(&symbol)?;
            if compare(Order::GreaterEqual, &price, &low)? && compare(Order::LessEqual, &price, &high)? {
                found.push(symbol);
            }
        }
        Ok(dict([("filtered_stocks", found.into())]))
    }

    fn notify(&self, [stocks, threshold]: [Value; 2]) -> Result<Value, Raise> {
        let mut changed = Vec::new();
        for symbol in iterate(&stocks)? {
            hashable(&symbol)?;
            let Some(stock) = self.stocks.get(&symbol) else { continue };
            let change = abs(field(stock, "percent_change")?)?;
            if compare(Order::GreaterEqual, &change, &threshold)? {
                changed.push(symbol.to_string());
            }
        }
        let text = if changed.is_empty() {
            "No significant price changes in the selected stocks.".to_owned()
        } else {
            format!("Stocks {} have significant price changes.", changed.join(", "))
        };
        Ok(dict([("notification", text.into())]))
    }
}

fn available([sector]: [Value; 1], long: Option<&LongContext>) -> Result<Value, Raise> {
    hashable(&sector)?;
    let place = SECTORS.iter().position(|(name, _)| sector.as_str() == Some(name));
    let mut found: Vec<Value> = Vec::new();
    if let Some(place) = place {
        found.extend(SECTORS[place].1.iter().map(|symbol| Value::from(*symbol)));
        if let Some(long) = long {
            found.extend_from_slice(&long.sectors[place]);
        }
    }
    Ok(dict([("stock_list", found.into())]))
}
