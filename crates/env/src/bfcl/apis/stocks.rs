//! Constants and times of `TradingBot`.

use crate::python::values::{Dict, Raise, Value, date, dict};

pub(in crate::bfcl) const SYMBOLS: [(&str, &str); 13] = [
    ("Apple", "AAPL"),
    ("Google", "GOOG"),
    ("Tesla", "TSLA"),
    ("Microsoft", "MSFT"),
    ("Nvidia", "NVDA"),
    ("Zeta Corp", "ZETA"),
    ("Alpha Tech", "ALPH"),
    ("Omega Industries", "OMEG"),
    ("Quasar Ltd.", "QUAS"),
    ("Neptune Systems", "NEPT"),
    ("Synex Solutions", "SYNX"),
    ("Amazon", "AMZN"),
    ("Gorilla", "GORI"),
];

pub(super) const SECTORS: [(&str, &[&str]); 2] =
    [("Technology", &["AAPL", "GOOG", "MSFT", "NVDA"]), ("Automobile", &["TSLA", "F", "GM"])];

/// Symbol of each stock with its price, change in percent, volume, and 5-day and 20-day averages.
const STOCKS: [(&str, [f64; 5]); 11] = [
    ("AAPL", [227.16, 0.17, 2.552, 227.11, 227.09]),
    ("GOOG", [2840.34, 0.24, 1.123, 2835.67, 2842.15]),
    ("TSLA", [667.92, -0.12, 1.654, 671.15, 668.20]),
    ("MSFT", [310.23, 0.09, 3.234, 309.88, 310.11]),
    ("NVDA", [220.34, 0.34, 1.234, 220.45, 220.67]),
    ("ALPH", [1320.45, -0.08, 1.567, 1321.12, 1325.78]),
    ("OMEG", [457.23, 0.12, 2.345, 456.78, 458.12]),
    ("QUAS", [725.89, -0.03, 1.789, 726.45, 728.00]),
    ("NEPT", [88.34, 0.19, 0.654, 88.21, 88.67]),
    ("SYNX", [345.67, 0.11, 2.112, 345.34, 346.12]),
    ("ZETA", [22.09, -0.05, 0.789, 22.12, 22.34]),
];

pub(super) fn default_stocks() -> Dict {
    let stock = |[price, change, volume, short, long]: [f64; 5]| {
        dict([
            ("price", price.into()),
            ("percent_change", change.into()),
            ("volume", volume.into()),
            ("MA(5)", short.into()),
            ("MA(20)", long.into()),
        ])
    };
    STOCKS.into_iter().map(|(symbol, numbers)| (symbol.into(), stock(numbers))).collect()
}

pub(super) fn default_orders() -> Dict {
    let order = |id: i64, kind: &str, symbol: &str, price: f64, amount: i64, status: &str| {
        let order = dict([
            ("id", id.into()),
            ("order_type", kind.into()),
            ("symbol", symbol.into()),
            ("price", price.into()),
            ("amount", amount.into()),
            ("status", status.into()),
        ]);
        (Value::Int(id), order)
    };
    let orders = [
        order(12_345, "Buy", "AAPL", 210.65, 10, "Completed"),
        order(12_446, "Sell", "GOOG", 2840.56, 5, "Pending"),
    ];
    orders.into_iter().collect()
}

pub(super) fn default_account() -> Dict {
    let mut account = Dict::new();
    account.insert("account_id", 12_345i64);
    account.insert("balance", 10_000.0);
    account.insert("binding_card", 1_974_202_140_965_533i64);
    account
}

pub(super) fn moment(value: &Value) -> Result<(i64, i64, i64, i64), Raise> {
    let mismatch = || {
        let repr = value.repr();
        Raise::value_error(format!("time data {repr} does not match format '%Y-%m-%d %H:%M:%S'"))
    };
    let Value::Str(text) = value else { return date(value).map(|(year, month, day)| (year, month, day, 0)) };
    let (day, time) = text.split_once(' ').ok_or_else(mismatch)?;
    let (year, month, day) = date(&day.into()).map_err(|_| mismatch())?;
    let parts: Vec<i64> = time.split(':').map_while(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [hour @ 0..=23, minute @ 0..=59, second @ 0..=61] if time.matches(':').count() == 2 => {
            Ok((year, month, day, hour * 3600 + minute * 60 + second))
        }
        _ => Err(mismatch()),
    }
}
