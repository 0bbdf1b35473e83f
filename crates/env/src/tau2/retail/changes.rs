//! Tools that modify orders and users. As in tau2-bench, the changes that a tool made before it
//! failed are kept.

use super::super::pydantic::strings;
use super::db::{Address, Order, Payment, Retail, Transaction, TransactionType, User};
use crate::python::values::{Class, Raise, Value, hashable, iterate, length, round};

const REASONS: [&str; 2] = ["no longer needed", "ordered by mistake"];

fn cents(amount: f64) -> Result<f64, Raise> {
    match round(&Value::Float(amount), &Value::Int(2))? {
        Value::Float(rounded) => Ok(rounded),
        _ => Ok(amount),
    }
}

/// `value.count(item)`
fn count(value: &Value, item: &Value) -> Result<usize, Raise> {
    match (value, item) {
        (Value::List(items), _) => Ok(items.iter().filter(|one| *one == item).count()),
        (Value::Str(text), Value::Str(part)) => Ok(text.matches(part.as_str()).count()),
        _ => Err(Raise::no_attribute(value, "count")),
    }
}

fn sorted(items: Vec<Value>) -> Vec<String> {
    // Item ids are strings.
    let mut ids: Vec<String> = items
        .into_iter()
        .filter_map(|item| if let Value::Str(text) = item { Some(text) } else { None })
        .collect();
    ids.sort_unstable();
    ids
}

struct Pair {
    old: String,
    new: Value,
}

impl Retail {
    fn order_mut(&mut self, place: usize) -> Option<&mut Order> {
        let base = self.base.orders.at(place)?.1;
        Some(self.orders.entry(place).or_insert_with(|| base.clone()))
    }

    fn user_mut(&mut self, place: usize) -> Option<&mut User> {
        let base = self.base.users.at(place)?.1;
        Some(self.users.entry(place).or_insert_with(|| base.clone()))
    }

    fn row(&self, place: usize) -> Result<&Order, Raise> {
        self.order_at(place).ok_or_else(|| Raise::value_error("Order not found"))
    }

    /// Refunds an amount. Only a gift card's balance changes, because other payment methods have no
    /// balance.
    fn refund(&mut self, user: usize, payment: &str, amount: f64) -> Result<(), Raise> {
        let methods = self.user_mut(user).map(|user| &mut user.payment_methods);
        if let Some(Payment::GiftCard { balance, .. }) = methods.and_then(|methods| methods.get_mut(payment))
        {
            *balance = cents(*balance + amount)?;
        }
        Ok(())
    }

    fn order_and_user(&self, order: usize) -> Result<usize, Raise> {
        self.user_of(&self.row(order)?.user_id)
    }

    pub(super) fn cancel(&mut self, order: &Value, reason: &Value) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if self.row(place)?.status != "pending" {
            return Err(Raise::value_error("Non-pending order cannot be cancelled"));
        }
        hashable(reason)?;
        let reason = reason
            .as_str()
            .filter(|reason| REASONS.contains(reason))
            .ok_or_else(|| Raise::value_error("Invalid reason"))?;
        let mut refunds = Vec::new();
        for payment in self.row(place)?.payment_history.clone() {
            let user = self.order_and_user(place)?;
            self.payment_method(user, &payment.payment_method_id.as_str().into())?;
            self.refund(user, &payment.payment_method_id, payment.amount)?;
            refunds.push(Transaction { transaction_type: TransactionType::Refund, ..payment });
        }
        if let Some(order) = self.order_mut(place) {
            "cancelled".clone_into(&mut order.status);
            order.cancel_reason = Some(reason.to_owned());
            order.payment_history.extend(refunds);
        }
        Ok(place)
    }

    /// Checks that the order contains each item at least as often as requested.
    fn check_items(
        &self,
        order: usize,
        items: &Value,
        missing: impl Fn(&Value) -> String,
    ) -> Result<Vec<Value>, Raise> {
        let known = &self.row(order)?.items;
        let listed = iterate(items)?;
        for item in &listed {
            let has = known.iter().filter(|known| item.as_str() == Some(&known.item_id)).count();
            if count(items, item)? > has {
                return Err(Raise::value_error(missing(item)));
            }
        }
        Ok(listed)
    }

    /// Returns the pairs of old and new item, and the total price difference, which is `None` if
    /// there are no pairs.
    fn difference(
        &self,
        order: usize,
        items: &[Value],
        new: Vec<Value>,
        must_differ: bool,
    ) -> Result<(Vec<Pair>, Option<f64>), Raise> {
        let known = &self.row(order)?.items;
        let mut pairs = Vec::with_capacity(items.len());
        let mut difference = None;
        for (item, new) in items.iter().zip(new) {
            if must_differ && *item == new {
                return Err(Raise::value_error("The new item id should be different from the old item id"));
            }
            let old = known
                .iter()
                .find(|known| item.as_str() == Some(&known.item_id))
                .ok_or_else(|| Raise::value_error(format!("Item {item} not found")))?;
            let variant = self.variant(&old.product_id, &new)?;
            if !variant.available {
                return Err(Raise::value_error(format!("New item {new} not found or available")));
            }
            difference = Some(difference.unwrap_or(0.0) + (variant.price - old.price));
            pairs.push(Pair { old: old.item_id.clone(), new });
        }
        Ok((pairs, difference))
    }

    pub(super) fn exchange(
        &mut self,
        order: &Value,
        items: &Value,
        new: &Value,
        payment: &Value,
    ) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if self.row(place)?.status != "delivered" {
            return Err(Raise::value_error("Non-delivered order cannot be exchanged"));
        }
        let listed = self.check_items(place, items, |item| format!("Number of {item} not found."))?;
        if length(items)? != length(new)? {
            return Err(Raise::value_error("The number of items to be exchanged should match."));
        }
        let new = iterate(new)?;
        let (_, difference) = self.difference(place, &listed, new.clone(), false)?;
        let difference = difference.map(cents).transpose()?;
        let user = self.order_and_user(place)?;
        if let Payment::GiftCard { balance, .. } = self.payment_method(user, payment)?
            && *balance < difference.unwrap_or(0.0)
        {
            let text = "Insufficient gift card balance to pay for the price difference";
            return Err(Raise::value_error(text));
        }
        if let Some(order) = self.order_mut(place) {
            "exchange requested".clone_into(&mut order.status);
            order.exchange_items = Some(sorted(listed));
            order.exchange_new_items = Some(sorted(new));
            order.exchange_payment_method_id = payment.as_str().map(str::to_owned);
            order.exchange_price_difference = match difference {
                Some(difference) => serde_json::Number::from_f64(difference),
                None => Some(0.into()),
            };
        }
        Ok(place)
    }

    pub(super) fn change_items(
        &mut self,
        order: &Value,
        items: &Value,
        new: &Value,
        payment: &Value,
    ) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if self.row(place)?.status != "pending" {
            return Err(Raise::value_error("Non-pending order cannot be modified"));
        }
        let listed = self.check_items(place, items, |item| format!("{item} not found"))?;
        if length(items)? != length(new)? {
            return Err(Raise::value_error("The number of items to be exchanged should match"));
        }
        let (pairs, difference) = self.difference(place, &listed, iterate(new)?, true)?;
        let difference = difference.unwrap_or(0.0);
        let user = self.order_and_user(place)?;
        if let Payment::GiftCard { balance, .. } = self.payment_method(user, payment)?
            && *balance < difference
        {
            return Err(Raise::value_error("Insufficient gift card balance to pay for the new item"));
        }
        let id = payment.as_str().unwrap_or_default();
        let transaction_type =
            if difference > 0.0 { TransactionType::Payment } else { TransactionType::Refund };
        let transaction =
            Transaction { transaction_type, amount: difference.abs(), payment_method_id: id.to_owned() };
        if let Some(order) = self.order_mut(place) {
            order.payment_history.push(transaction);
        }
        self.refund(user, id, -difference)?;
        // The original gives every item the last one's price and options.
        let last = match (pairs.last(), self.row(place)?) {
            (Some(pair), row) => {
                let item = row.items.iter().find(|item| item.item_id == pair.old);
                item.map(|item| self.variant(&item.product_id, &pair.new).cloned()).transpose()?
            }
            (None, _) => None,
        };
        let base = self.base.orders.at(place).map(|(_, base)| base);
        let (Some(base), Some(last)) = (base, last) else {
            if let Some(order) = self.order_mut(place) {
                "pending (item modified)".clone_into(&mut order.status);
            }
            return Ok(place);
        };
        let order = self.orders.entry(place).or_insert_with(|| base.clone());
        for Pair { old, new } in pairs {
            let item = order
                .items
                .iter_mut()
                .find(|item| item.item_id == old)
                .ok_or_else(|| Raise::value_error(format!("Item {old} not found")))?;
            new.as_str().unwrap_or_default().clone_into(&mut item.item_id);
            item.price = last.price;
            item.options = last.options.clone();
        }
        "pending (item modified)".clone_into(&mut order.status);
        Ok(place)
    }

    pub(super) fn change_payment(&mut self, order: &Value, payment: &Value) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if !self.row(place)?.status.contains("pending") {
            return Err(Raise::value_error("Non-pending order cannot be modified"));
        }
        let user = self.order_and_user(place)?;
        let method = self.payment_method(user, payment)?;
        let first = match self.row(place)?.payment_history.as_slice() {
            [only] if only.transaction_type == TransactionType::Payment => only.clone(),
            _ => return Err(Raise::value_error("There should be exactly one payment for a pending order")),
        };
        let id = payment.as_str().unwrap_or_default();
        if first.payment_method_id == id {
            let text = "The new payment method should be different from the current one";
            return Err(Raise::value_error(text));
        }
        let amount = first.amount;
        if let Payment::GiftCard { balance, .. } = method
            && *balance < amount
        {
            return Err(Raise::value_error("Insufficient gift card balance to pay for the order"));
        }
        let paid = Transaction {
            transaction_type: TransactionType::Payment,
            amount,
            payment_method_id: id.to_owned(),
        };
        let old = first.payment_method_id.clone();
        if let Some(order) = self.order_mut(place) {
            let refund = Transaction { transaction_type: TransactionType::Refund, ..first };
            order.payment_history.extend([paid, refund]);
        }
        self.refund(user, id, -amount)?;
        self.payment_method(user, &old.as_str().into())?;
        self.refund(user, &old, amount)?;
        Ok(place)
    }

    pub(super) fn change_order_address(
        &mut self,
        order: &Value,
        address: &[Value; 6],
    ) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if !self.row(place)?.status.contains("pending") {
            return Err(Raise::value_error("Non-pending order cannot be modified"));
        }
        let address = read_address(address)?;
        if let Some(order) = self.order_mut(place) {
            order.address = address;
        }
        Ok(place)
    }

    pub(super) fn change_user_address(&mut self, user: &Value, address: &[Value; 6]) -> Result<usize, Raise> {
        let place = self.user(user)?;
        let address = read_address(address)?;
        if let Some(user) = self.user_mut(place) {
            user.address = address;
        }
        Ok(place)
    }

    pub(super) fn return_items(
        &mut self,
        order: &Value,
        items: &Value,
        payment: &Value,
    ) -> Result<usize, Raise> {
        let place = self.order(order)?;
        if self.row(place)?.status != "delivered" {
            return Err(Raise::value_error("Non-delivered order cannot be returned"));
        }
        let user = self.order_and_user(place)?;
        let method = self.payment_method(user, payment)?;
        if !matches!(method, Payment::GiftCard { .. }) {
            let first = self.row(place)?.payment_history.first();
            let first = first.ok_or_else(|| Raise::new(Class::Lookup, "list index out of range"))?;
            if payment.as_str() != Some(&first.payment_method_id) {
                return Err(Raise::value_error("Payment method should be the original payment method"));
            }
        }
        let listed = self.check_items(place, items, |_| "Some item not found".to_owned())?;
        if let Some(order) = self.order_mut(place) {
            "return requested".clone_into(&mut order.status);
            order.return_items = Some(sorted(listed));
            order.return_payment_method_id = payment.as_str().map(str::to_owned);
        }
        Ok(place)
    }
}

/// Reads an address. Errors are listed in the field order of tau2-bench's class `UserAddress`,
/// which differs from the order of the arguments.
fn read_address([address1, address2, city, state, country, zip]: &[Value; 6]) -> Result<Address, Raise> {
    let [address1, address2, city, country, state, zip] = strings(
        "UserAddress",
        [
            ("address1", address1),
            ("address2", address2),
            ("city", city),
            ("country", country),
            ("state", state),
            ("zip", zip),
        ],
    )?;
    Ok(Address { address1, address2, city, country, state, zip })
}
