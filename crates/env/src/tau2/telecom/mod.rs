//! The `telecom` domain in solo mode: technical support of a mobile carrier. The agent reads a
//! ticket and uses both its tools and the user's phone.

mod access_point;
mod agent;
mod db;
mod device;
mod functions;
mod network;
mod phone;

pub use db::Carrier;
use phone::PaymentRequest;
pub use phone::Phone;

use super::json::dumps;
use super::task::Side;
use crate::python::values::{Raise, Value};

pub(super) const DONE: &str = r#"{"type":"function","function":{"name":"done","description":"Ends the episode. Call it when the ticket is solved.","parameters":{"properties":{},"title":"parameters","type":"object"}}}"#;

pub(super) const DONE_NAME: &str = "done";

/// An episode's state: the carrier and the phone.
#[derive(Clone, Debug, PartialEq)]
pub struct Telecom {
    pub(super) carrier: Carrier,
    pub(super) phone: Phone,
    /// Performance of new VPN connections. As in tau2-bench, once a setup action has broken a
    /// connection, all later connections have the lower performance.
    vpn: String,
    made: u32,
}

impl Telecom {
    /// Creates the initial state.
    pub fn new(carrier: Carrier, phone: Phone) -> Self {
        Self { carrier, phone, vpn: "excellent".to_owned(), made: 0 }
    }

    /// Synchronizes status, roaming, usage and payments between carrier and phone.
    pub(super) fn sync(&mut self) -> Result<(), Raise> {
        let around = &mut self.phone.surroundings;
        let Some(number) = around.phone_number.clone() else { return Ok(()) };
        let line = self.carrier.line_by_phone(&number)?;
        around.line_active = line.status == "Active";
        around.roaming_allowed = line.roaming_enabled;
        let plan = self.carrier.plan(&line.plan_id.as_str().into())?;
        around.mobile_data_usage_exceeded = line.data_used_gb >= plan.data_limit_gb + line.data_refueling_gb;
        if let Some(request) = around.payment_request.take_if(|request| request.paid) {
            self.carrier.set_paid(&request.bill_id)?;
        }
        if around.payment_request.is_none() {
            let customer = self.carrier.customer_by_phone(&number.as_str().into())?;
            around.payment_request = self.carrier.awaiting(customer)?.map(|bill| PaymentRequest {
                bill_id: bill.bill_id.clone(),
                amount_due: bill.total_due,
                paid: false,
            });
        }
        Ok(())
    }

    /// Executes a tool of the carrier or the phone without synchronizing the two afterwards.
    pub(super) fn call_on(
        &mut self,
        side: Side,
        name: &str,
        arguments: Vec<(String, Value)>,
    ) -> Result<String, Raise> {
        match side {
            Side::Assistant => self.carrier.call(name, arguments, &mut self.made),
            Side::User => {
                let method = device::METHODS
                    .iter()
                    .find(|method| method.name == name)
                    .ok_or_else(|| Raise::value_error(format!("Tool '{name}' not found.")))?;
                self.phone.call(method, arguments, &self.vpn)
            }
        }
    }

    pub(super) fn call(&mut self, name: &str, arguments: Vec<(String, Value)>) -> Result<String, Raise> {
        let is_phones = device::METHODS.iter().any(|method| method.name == name);
        let side = if is_phones { Side::User } else { Side::Assistant };
        let text = self.call_on(side, name, arguments)?;
        self.sync()?;
        Ok(text)
    }

    /// Returns the JSON that tau2-bench would write for the carrier and for the phone.
    pub(super) fn parts(&self) -> Result<Vec<(String, String)>, serde_json::Error> {
        Ok(vec![("carrier".to_owned(), dumps(&self.carrier)?), ("phone".to_owned(), dumps(&self.phone)?)])
    }
}
