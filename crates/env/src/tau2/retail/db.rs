//! The store's database and an episode's changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::ordered::Ordered;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Variant {
    pub(super) item_id: String,
    pub(super) options: Ordered<String>,
    pub(super) available: bool,
    pub(super) price: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Product {
    pub(super) name: String,
    pub(super) product_id: String,
    pub(super) variants: Ordered<Variant>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Name {
    pub(super) first_name: String,
    pub(super) last_name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Address {
    pub(super) address1: String,
    pub(super) address2: String,
    pub(super) city: String,
    pub(super) country: String,
    pub(super) state: String,
    pub(super) zip: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub(super) enum Payment {
    CreditCard { id: String, brand: String, last_four: String },
    GiftCard { id: String, balance: f64 },
    Paypal { id: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct User {
    pub(super) user_id: String,
    pub(super) name: Name,
    pub(super) address: Address,
    pub(super) email: String,
    pub(super) payment_methods: Ordered<Payment>,
    pub(super) orders: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fulfillment {
    pub(super) tracking_id: Vec<String>,
    pub(super) item_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) product_id: String,
    pub(super) item_id: String,
    pub(super) price: f64,
    pub(super) options: Ordered<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) transaction_type: TransactionType,
    pub(super) amount: f64,
    pub(super) payment_method_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TransactionType {
    Payment,
    Refund,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) order_id: String,
    pub(super) user_id: String,
    pub(super) address: Address,
    pub(super) items: Vec<Item>,
    pub(super) status: String,
    pub(super) fulfillments: Vec<Fulfillment>,
    pub(super) payment_history: Vec<Transaction>,
    #[serde(default)]
    pub(super) cancel_reason: Option<String>,
    #[serde(default)]
    pub(super) exchange_items: Option<Vec<String>>,
    #[serde(default)]
    pub(super) exchange_new_items: Option<Vec<String>>,
    #[serde(default)]
    pub(super) exchange_payment_method_id: Option<String>,
    /// Price difference of an exchange. If no items are exchanged, the difference is the integer 0
    /// rather than a float, as in tau2-bench.
    #[serde(default)]
    pub(super) exchange_price_difference: Option<serde_json::Number>,
    #[serde(default)]
    pub(super) return_items: Option<Vec<String>>,
    #[serde(default)]
    pub(super) return_payment_method_id: Option<String>,
}

/// The stored database.
#[derive(Clone, Debug, Deserialize)]
pub struct RetailDb {
    pub(super) products: Ordered<Product>,
    pub(super) users: Ordered<User>,
    pub(super) orders: Ordered<Order>,
}

/// The stored database with an episode's changes.
#[derive(Clone, Debug)]
pub struct Retail {
    pub(super) base: Arc<RetailDb>,
    pub(super) users: BTreeMap<usize, User>,
    pub(super) orders: BTreeMap<usize, Order>,
}

/// Compares two sets of changed rows. A row that is in only one set must equal the stored row.
fn same<T: PartialEq>(base: &Ordered<T>, one: &BTreeMap<usize, T>, other: &BTreeMap<usize, T>) -> bool {
    let row = |rows: &BTreeMap<usize, T>, place: usize, expected: &T| {
        rows.get(&place).or_else(|| base.at(place).map(|(_, row)| row)) == Some(expected)
    };
    one.iter().all(|(place, value)| row(other, *place, value))
        && other.iter().all(|(place, value)| row(one, *place, value))
}

impl PartialEq for Retail {
    fn eq(&self, other: &Self) -> bool {
        same(&self.base.users, &self.users, &other.users)
            && same(&self.base.orders, &self.orders, &other.orders)
    }
}

impl Retail {
    /// Creates an episode's database.
    pub fn new(base: Arc<RetailDb>) -> Self {
        Self { base, users: BTreeMap::new(), orders: BTreeMap::new() }
    }

    pub(super) fn user_at(&self, place: usize) -> Option<&User> {
        self.users.get(&place).or_else(|| self.base.users.at(place).map(|(_, user)| user))
    }

    pub(super) fn order_at(&self, place: usize) -> Option<&Order> {
        self.orders.get(&place).or_else(|| self.base.orders.at(place).map(|(_, order)| order))
    }

    /// Returns each changed row: its name (table and key) and the JSON that tau2-bench would write.
    ///
    /// # Errors
    /// Fails if serialization fails.
    pub fn changes(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        fn changed<T: PartialEq + Serialize>(
            name: &str,
            base: &Ordered<T>,
            rows: &BTreeMap<usize, T>,
            found: &mut Vec<(String, String)>,
        ) -> Result<(), serde_json::Error> {
            for (place, row) in rows {
                if let Some((key, old)) = base.at(*place)
                    && old != row
                {
                    found.push((format!("{name}.{key}"), super::super::json::dumps(row)?));
                }
            }
            Ok(())
        }
        let mut found = Vec::new();
        changed("users", &self.base.users, &self.users, &mut found)?;
        changed("orders", &self.base.orders, &self.orders, &mut found)?;
        Ok(found)
    }
}
