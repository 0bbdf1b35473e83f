//! Requests about stocks and flights.

use super::request::{CITIES, Draw, NAMES, Request, Scene, texts};
use crate::bfcl::apis::SYMBOLS;
use crate::python::values::{Dict, Value, dict};

/// Number of stocks with data, which come first in [`SYMBOLS`].
const COMPANIES: usize = 11;

pub(super) fn trading(draw: &mut Draw) -> Scene {
    let mut companies = SYMBOLS[..COMPANIES].to_vec();
    draw.0.shuffle(&mut companies);
    let prices: Vec<f64> = (0..COMPANIES).map(|_| draw.number(200, 90_000) as f64 / 100.0).collect();
    let stocks = companies.iter().zip(&prices).map(|((_, symbol), price)| {
        let stock = dict([
            ("price", (*price).into()),
            ("percent_change", (draw.number(-30, 30) as f64 / 100.0).into()),
            ("volume", (draw.number(500, 4000) as f64 / 1000.0).into()),
        ]);
        ((*symbol).into(), stock)
    });
    let stocks: Dict = stocks.collect();
    let symbol = |place: usize| companies[place].1;
    let ids: [i64; 2] = draw.numbers(10_000, 12_000);
    let orders = ids.iter().enumerate().map(|(place, id)| {
        let order = dict([
            ("id", (*id).into()),
            ("order_type", "Buy".into()),
            ("symbol", symbol(5 + place).into()),
            ("price", prices[5 + place].into()),
            ("amount", draw.number(1, 20).into()),
            ("status", "Open".into()),
        ]);
        (Value::Int(*id), order)
    });
    let orders: Dict = orders.collect();
    let account = dict([
        ("account_id", draw.number(10_000, 99_999).into()),
        ("balance", (draw.number(500_000, 900_000) as f64).into()),
        ("binding_card", draw.number(1_000_000_000, 9_999_999_999).into()),
    ]);
    let mut config = Dict::new();
    config.insert("orders", orders);
    config.insert("account_info", account);
    config.insert("authenticated", true);
    config.insert("market_status", "Open");
    config.insert("order_counter", draw.number(12_001, 13_000));
    config.insert("stocks", stocks);
    config.insert("watch_list", texts([symbol(7), symbol(8), symbol(9)]));
    config.insert("transaction_history", Value::List(Vec::new()));
    let [amount, more, money, taken] =
        [draw.number(2, 60), draw.number(2, 60), draw.number(50, 9000), draw.number(50, 9000)];
    let price = draw.number(100, 40_000) as f64 / 100.0;
    let order = |kind: &str, symbol: &str, price: f64, amount: i64| {
        [
            ("order_type", kind.into()),
            ("symbol", symbol.into()),
            ("price", price.into()),
            ("amount", amount.into()),
        ]
    };
    let requests = vec![
        Request::new(match draw.number(0, 1) {
            0 => format!("Buy {amount} shares of {} at a price of {price}.", symbol(0)),
            _ => format!("Place an order to buy {amount} {} at {price} each.", symbol(0)),
        })
        .call("place_order", order("Buy", symbol(0), price, amount))
        .vaguely(
            format!("Buy shares of {} at a price of {price}.", symbol(0)),
            format!("Buy {amount} of them."),
        ),
        Request::new(format!("Sell {more} shares of {} at a price of {price}.", symbol(1)))
            .call("place_order", order("Sell", symbol(1), price, more))
            .vaguely(format!("Sell {more} shares of {}.", symbol(1)), format!("At a price of {price}.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Pay {money} into my account."),
            _ => format!("Fund the account with {money}."),
        })
        .call("fund_account", [("amount", money.into())])
        .vaguely("Pay some money into my account.", format!("The amount is {money}.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Withdraw {taken} from my account."),
            _ => format!("Take {taken} out of the account."),
        })
        .call("withdraw_funds", [("amount", taken.into())])
        .vaguely("Withdraw some money from my account.", format!("I want {taken}.")),
        Request::new(match draw.number(0, 1) {
            0 => format!("Cancel the order {}.", ids[0]),
            _ => format!("I changed my mind about order {}, cancel it.", ids[0]),
        })
        .call("cancel_order", [("order_id", ids[0].into())])
        .vaguely("Cancel one of my orders.", format!("The order {}.", ids[0])),
        Request::new(format!("Show me the order {}.", ids[1]))
            .call("get_order_details", [("order_id", ids[1].into())]),
        Request::new(format!("Watch the stock of {}.", companies[2].0))
            .lookup("get_symbol_by_name", [("name", companies[2].0.into())])
            .call("add_to_watchlist", [("stock", symbol(2).into())]),
        Request::new(format!("Stop watching the stock of {}.", companies[7].0))
            .lookup("get_symbol_by_name", [("name", companies[7].0.into())])
            .call("remove_stock_from_watchlist", [("symbol", symbol(7).into())]),
        Request::new(format!("Buy {amount} shares of {} at the current price.", symbol(3)))
            .lookup("get_stock_info", [("symbol", symbol(3).into())])
            .call("place_order", order("Buy", symbol(3), prices[3], amount))
            .vaguely(
                format!("Buy shares of {} at the current price.", symbol(3)),
                format!("Buy {amount} shares."),
            ),
    ];
    Scene { config, requests }
}

const ROUTES: [(&str, &str); 10] = [
    ("SFO", "LAX"),
    ("SFO", "JFK"),
    ("SFO", "ORD"),
    ("SFO", "BOS"),
    ("LAX", "JFK"),
    ("LAX", "ORD"),
    ("JFK", "BOS"),
    ("ORD", "BOS"),
    ("RMS", "SBK"),
    ("MPC", "SVP"),
];

const AIRPORTS: [(&str, &str); 6] = [
    ("Los Angeles", "LAX"),
    ("New York", "JFK"),
    ("Chicago", "ORD"),
    ("Boston", "BOS"),
    ("Rivermist", "RMS"),
    ("Stonebrook", "SBK"),
];

const CURRENCIES: [&str; 8] = ["RMB", "EUR", "JPY", "GBP", "CAD", "AUD", "INR", "MXN"];

pub(super) fn travel(draw: &mut Draw) -> Scene {
    let token = format!("tk{}", draw.number(100, 999));
    let [card, booked] = draw.numbers(1000, 9999).map(|number| format!("card_{number}"));
    let bookings = draw.numbers::<2>(100_000, 999_999).map(|number| number.to_string());
    let [first, last] = draw.words(&NAMES);
    let cards: Dict = [&card, &booked]
        .into_iter()
        .map(|id| {
            let entry = dict([
                ("card_number", draw.number(100_000, 999_999).to_string().into()),
                ("expiration_date", "2030-01".into()),
                ("cardholder_name", format!("{first} {last}").into()),
                ("card_verification_number", draw.number(100, 999).into()),
                ("balance", (draw.number(50_000, 90_000) as f64).into()),
            ]);
            (id.as_str().into(), entry)
        })
        .collect();
    let date = |draw: &mut Draw| format!("2027-{:02}-{:02}", draw.number(1, 12), draw.number(1, 28));
    let record: Dict = bookings
        .iter()
        .map(|id| {
            let (from, to) = ROUTES[draw.0.below(ROUTES.len())];
            let entry = dict([
                ("card_id", booked.as_str().into()),
                ("travel_date", date(draw).into()),
                ("travel_from", from.into()),
                ("travel_to", to.into()),
                ("travel_class", "economy".into()),
                ("travel_cost", (draw.number(100, 900) as f64).into()),
                ("transaction_id", draw.number(10_000_000, 99_999_999).to_string().into()),
            ]);
            (id.as_str().into(), entry)
        })
        .collect();
    let mut config = Dict::new();
    config.insert("credit_card_list", cards);
    config.insert("booking_record", record);
    config.insert("access_token", token.as_str());
    config.insert("token_type", "Bearer");
    config.insert("token_expires_in", 1000i64);
    config.insert("token_scope", "read_write");
    config.insert("user_first_name", first);
    config.insert("user_last_name", last);
    let classes = ["economy", "business", "first"];
    let ([class, priced], [day, other_day]) =
        ([draw.word(&classes), draw.word(&classes)], [date(draw), date(draw)]);
    let [(from, to), (start, end)] = [ROUTES[draw.0.below(10)], ROUTES[draw.0.below(10)]];
    let (city, airport) = AIRPORTS[draw.0.below(AIRPORTS.len())];
    let [limit, sum] = [draw.number(500, 9000), draw.number(10, 5000)];
    let currency = draw.word(&CURRENCIES);
    let book = |from: &str, to: &str, day: &str, class: &str| {
        [
            ("access_token", token.as_str().into()),
            ("card_id", card.as_str().into()),
            ("travel_date", day.into()),
            ("travel_from", from.into()),
            ("travel_to", to.into()),
            ("travel_class", class.into()),
        ]
    };
    let flight = |day: &str| {
        format!(
            "Book a flight from {from} to {to}{day} in {class} class with the card {card}; the token is {token}."
        )
    };
    let own = || Value::from(token.as_str());
    let requests = vec![
        Request::new(flight(&format!(" on {day}")))
            .call("book_flight", book(from, to, &day, class))
            .vaguely(flight(""), format!("On {day}.")),
        Request::new(format!("Set my travel budget to {limit}, with the token {token}."))
            .call("set_budget_limit", [("access_token", own()), ("budget_limit", limit.into())])
            .vaguely(format!("Limit my travel budget, with the token {token}."), format!("To {limit}.")),
        Request::new(format!("Cancel my booking {}; the token is {token}.", bookings[0]))
            .call("cancel_booking", [("access_token", own()), ("booking_id", bookings[0].as_str().into())])
            .vaguely(
                format!("Cancel one of my bookings; the token is {token}."),
                format!("The booking {}.", bookings[0]),
            ),
        Request::new(format!("What does a flight from {start} to {end} on {other_day} cost in {priced} class?")).call(
            "get_flight_cost",
            [
                ("travel_from", start.into()),
                ("travel_to", end.into()),
                ("travel_date", other_day.as_str().into()),
                ("travel_class", priced.into()),
            ],
        ),
        Request::new(format!("How much are {sum} USD in {currency}?")).call(
            "compute_exchange_rate",
            [("base_currency", "USD".into()), ("target_currency", currency.into()), ("value", sum.into())],
        ),
        Request::new(format!("Show the invoice of my booking {}, with the token {token}.", bookings[1]))
            .call("retrieve_invoice", [("access_token", own()), ("booking_id", bookings[1].as_str().into())]),
        Request::new(format!(
            "Book a flight from SFO to the airport of {city} on {other_day} in {class} class with the card {card}; the \
             token is {token}."
        ))
        .lookup("get_nearest_airport_by_city", [("location", city.into())])
        .call("book_flight", book("SFO", airport, &other_day, class)),
        {
            // A flight request's result would already show the airport.
            let city = draw.word(&CITIES[2..]);
            Request::new(format!("Which airport is the nearest one to {city}, and what is left on the card {card}? The token is {token}."))
                .call("get_nearest_airport_by_city", [("location", city.into())])
                .call("get_credit_card_balance", [("access_token", own()), ("card_id", card.as_str().into())])
        },
    ];
    Scene { config, requests }
}
