//! Read-only tools.

use std::collections::BTreeMap;

use super::db::{Payment, Product, Retail, Variant};
use super::text;
use crate::python::values::{Raise, Value, hashable, lower, str_method};

fn key(value: &Value) -> Result<Option<&str>, Raise> {
    hashable(value).map(|()| value.as_str())
}

impl Retail {
    pub(super) fn order(&self, id: &Value) -> Result<usize, Raise> {
        let found = key(id)?.and_then(|id| self.base.orders.place(id));
        found.ok_or_else(|| Raise::value_error("Order not found"))
    }

    pub(super) fn user(&self, id: &Value) -> Result<usize, Raise> {
        key(id)?.and_then(|id| self.base.users.place(id)).ok_or_else(|| Raise::value_error("User not found"))
    }

    pub(super) fn user_of(&self, id: &str) -> Result<usize, Raise> {
        self.base.users.place(id).ok_or_else(|| Raise::value_error("User not found"))
    }

    pub(super) fn product(&self, id: &Value) -> Result<&Product, Raise> {
        let found = key(id)?.and_then(|id| self.base.products.get(id));
        found.ok_or_else(|| Raise::value_error("Product not found"))
    }

    pub(super) fn variant(&self, product: &str, id: &Value) -> Result<&Variant, Raise> {
        let product =
            self.base.products.get(product).ok_or_else(|| Raise::value_error("Product not found"))?;
        let found = key(id)?.and_then(|id| product.variants.get(id));
        found.ok_or_else(|| Raise::value_error("Variant not found"))
    }

    pub(super) fn item(&self, id: &Value) -> Result<&Variant, Raise> {
        if self.base.products.is_empty() {
            return Err(Raise::value_error("Item not found"));
        }
        let id = key(id)?;
        let mut products = self.base.products.iter();
        let found = id.and_then(|id| products.find_map(|(_, product)| product.variants.get(id)));
        found.ok_or_else(|| Raise::value_error("Item not found"))
    }

    pub(super) fn payment_method(&self, user: usize, id: &Value) -> Result<&Payment, Raise> {
        let methods = self.user_at(user).map(|user| &user.payment_methods);
        let found = key(id)?.and_then(|id| methods?.get(id));
        found.ok_or_else(|| Raise::value_error("Payment method not found"))
    }

    pub(super) fn find_by_name(&self, first: &Value, last: &Value, zip: &Value) -> Result<String, Raise> {
        for (place, (id, _)) in self.base.users.iter().enumerate() {
            let Some(user) = self.user_at(place) else { continue };
            if lower(&user.name.first_name) == lower(str_method(first, "lower")?)
                && lower(&user.name.last_name) == lower(str_method(last, "lower")?)
                && zip.as_str() == Some(&user.address.zip)
            {
                return Ok(id.to_owned());
            }
        }
        Err(Raise::value_error("User not found"))
    }

    pub(super) fn find_by_email(&self, email: &Value) -> Result<String, Raise> {
        for (place, (id, _)) in self.base.users.iter().enumerate() {
            let Some(user) = self.user_at(place) else { continue };
            if lower(&user.email) == lower(str_method(email, "lower")?) {
                return Ok(id.to_owned());
            }
        }
        Err(Raise::value_error("User not found"))
    }

    pub(super) fn product_types(&self) -> Result<String, Raise> {
        let products = self.base.products.iter();
        let names: BTreeMap<&str, &str> =
            products.map(|(_, product)| (product.name.as_str(), product.product_id.as_str())).collect();
        text(&names)
    }
}
