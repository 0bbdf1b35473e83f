//! The `retail` domain: a store.

mod changes;
mod db;
mod lookups;

pub use db::{Retail, RetailDb};

use super::arithmetic::calculate;
use super::json::dumps;
use crate::python::method::{Method, method, required};
use crate::python::values::{Class, Raise, Value};

/// Tools in the order of tau2-bench.
pub(super) const METHODS: &[Method] = &[
    method("calculate", &[required("expression")]),
    method("cancel_pending_order", &[required("order_id"), required("reason")]),
    method(
        "exchange_delivered_order_items",
        &[
            required("order_id"),
            required("item_ids"),
            required("new_item_ids"),
            required("payment_method_id"),
        ],
    ),
    method("find_user_id_by_name_zip", &[required("first_name"), required("last_name"), required("zip")]),
    method("find_user_id_by_email", &[required("email")]),
    method("get_order_details", &[required("order_id")]),
    method("get_product_details", &[required("product_id")]),
    method("get_item_details", &[required("item_id")]),
    method("get_user_details", &[required("user_id")]),
    method("list_all_product_types", &[]),
    method(
        "modify_pending_order_address",
        &[
            required("order_id"),
            required("address1"),
            required("address2"),
            required("city"),
            required("state"),
            required("country"),
            required("zip"),
        ],
    ),
    method(
        "modify_pending_order_items",
        &[
            required("order_id"),
            required("item_ids"),
            required("new_item_ids"),
            required("payment_method_id"),
        ],
    ),
    method("modify_pending_order_payment", &[required("order_id"), required("payment_method_id")]),
    method(
        "modify_user_address",
        &[
            required("user_id"),
            required("address1"),
            required("address2"),
            required("city"),
            required("state"),
            required("country"),
            required("zip"),
        ],
    ),
    method(
        "return_delivered_order_items",
        &[required("order_id"), required("item_ids"), required("payment_method_id")],
    ),
    method("transfer_to_human_agents", &[required("summary")]),
];

fn text<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, Raise> {
    dumps(value).map_err(|error| Raise::new(Class::Other, error.to_string()))
}

impl Retail {
    pub(super) fn call(&mut self, name: &str, arguments: Vec<(String, Value)>) -> Result<String, Raise> {
        let method = METHODS
            .iter()
            .find(|method| method.name == name)
            .ok_or_else(|| Raise::value_error(format!("Tool '{name}' not found.")))?;
        let bound = method.bind("RetailTools", Vec::new(), arguments)?;
        match name {
            "calculate" => {
                let [expression] = bound.take();
                calculate(&expression)
            }
            "cancel_pending_order" => {
                let [order, reason] = bound.take();
                let place = self.cancel(&order, &reason)?;
                self.order_text(place)
            }
            "exchange_delivered_order_items" => {
                let [order, items, new, payment] = bound.take();
                let place = self.exchange(&order, &items, &new, &payment)?;
                self.order_text(place)
            }
            "find_user_id_by_name_zip" => {
                let [first, last, zip] = bound.take();
                self.find_by_name(&first, &last, &zip)
            }
            "find_user_id_by_email" => {
                let [email] = bound.take();
                self.find_by_email(&email)
            }
            "get_order_details" => {
                let [order] = bound.take();
                let place = self.order(&order)?;
                self.order_text(place)
            }
            "get_product_details" => {
                let [product] = bound.take();
                text(self.product(&product)?)
            }
            "get_item_details" => {
                let [item] = bound.take();
                text(self.item(&item)?)
            }
            "get_user_details" => {
                let [user] = bound.take();
                let place = self.user(&user)?;
                self.user_text(place)
            }
            "list_all_product_types" => self.product_types(),
            "modify_pending_order_address" => {
                let [order, address @ ..] = bound.take::<7>();
                let place = self.change_order_address(&order, &address)?;
                self.order_text(place)
            }
            "modify_pending_order_items" => {
                let [order, items, new, payment] = bound.take();
                let place = self.change_items(&order, &items, &new, &payment)?;
                self.order_text(place)
            }
            "modify_pending_order_payment" => {
                let [order, payment] = bound.take();
                let place = self.change_payment(&order, &payment)?;
                self.order_text(place)
            }
            "modify_user_address" => {
                let [user, address @ ..] = bound.take::<7>();
                let place = self.change_user_address(&user, &address)?;
                self.user_text(place)
            }
            "return_delivered_order_items" => {
                let [order, items, payment] = bound.take();
                let place = self.return_items(&order, &items, &payment)?;
                self.order_text(place)
            }
            _ => Ok("Transfer successful".to_owned()),
        }
    }

    fn order_text(&self, place: usize) -> Result<String, Raise> {
        self.order_at(place).map_or_else(|| Ok(String::new()), text)
    }

    fn user_text(&self, place: usize) -> Result<String, Raise> {
        self.user_at(place).map_or_else(|| Ok(String::new()), text)
    }
}
