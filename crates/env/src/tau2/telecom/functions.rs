//! Functions for setup actions and assertions of tasks; agents cannot call them.

use super::super::task::{FunctionCall, Side, keywords};
use super::Telecom;
use super::agent::METHODS as AGENT;
use super::device::METHODS as PHONE;
use crate::python::values::{Raise, Value, float_of};

struct Arguments<'a>(&'a FunctionCall);

impl Arguments<'_> {
    /// Returns an argument's value, or Python's `None` if the argument is missing.
    fn get(&self, name: &str) -> Value {
        self.0.arguments.as_dict().and_then(|fields| fields.get_str(name)).cloned().unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.get(name).is_true()
    }

    fn text(&self, name: &str) -> String {
        self.get(name).to_string()
    }
}

impl Telecom {
    /// Calls a function of a task's setup or assertions, then synchronizes carrier and phone.
    pub(in crate::tau2) fn run(&mut self, call: &FunctionCall) -> Result<Value, Raise> {
        let arguments = Arguments(call);
        let name = call.func_name.as_str();
        let value = match call.env_type {
            Side::Assistant if AGENT.iter().any(|method| method.name == name) => {
                self.call_on(Side::Assistant, name, keywords(&call.arguments)).map(Value::from)?
            }
            Side::User if PHONE.iter().any(|method| method.name == name) => {
                self.call_on(Side::User, name, keywords(&call.arguments)).map(Value::from)?
            }
            Side::Assistant => self.run_carrier(name, &arguments)?,
            Side::User => self.run_phone(name, &arguments)?,
        };
        self.sync()?;
        Ok(value)
    }

    fn run_carrier(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Value, Raise> {
        let (customer, line) = (arguments.get("customer_id"), arguments.get("line_id"));
        let carrier = &mut self.carrier;
        Ok(match name {
            "set_data_usage" => {
                carrier.set_usage(&customer, &line, &arguments.get("data_used_gb"))?;
                Value::None
            }
            "suspend_line_for_overdue_bill" => {
                let bill = arguments.get("new_bill_id");
                carrier.suspend_for_bill(&customer, &line, &bill, arguments.is("contract_ended"))?;
                Value::None
            }
            "assert_data_refueling_amount" => {
                let expected = float_of(&arguments.get("expected_amount"))?;
                let found = carrier.target_line(&customer, &line)?.data_refueling_gb;
                Value::Bool((found - expected).abs() < 1e-6)
            }
            "assert_line_status" => {
                let found = &carrier.target_line(&customer, &line)?.status;
                Value::Bool(*found == arguments.text("expected_status"))
            }
            "assert_no_overdue_bill" => {
                let bill = carrier.bill(&arguments.get("overdue_bill_id"));
                Value::Bool(bill.map_or(true, |bill| bill.status == "Paid"))
            }
            _ => return Err(unknown(name)),
        })
    }

    fn run_phone(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Value, Raise> {
        let phone = &mut self.phone;
        let expected = |found: bool| Value::Bool(found == arguments.is("expected_status"));
        match name {
            "set_user_info" => {
                phone.surroundings.name = Some(arguments.text("name"));
                phone.surroundings.phone_number = Some(arguments.text("phone_number"));
            }
            "set_user_location" => phone.surroundings.is_abroad = arguments.is("abroad"),
            "simulate_network_search" => phone.search_network(),
            // If the first toggle went the wrong way, the second undoes it.
            "turn_airplane_mode_on" => {
                let _ = phone.toggle_airplane_mode() || phone.toggle_airplane_mode();
            }
            "turn_airplane_mode_off" => {
                let _ = phone.toggle_airplane_mode() && phone.toggle_airplane_mode();
            }
            "turn_data_on" => phone.device.data_enabled = true,
            "turn_data_off" => {
                let _ = phone.toggle_data() && phone.toggle_data();
            }
            "turn_roaming_on" => {
                let _ = phone.toggle_roaming() || phone.toggle_roaming();
            }
            "turn_roaming_off" => {
                let _ = phone.toggle_roaming() && phone.toggle_roaming();
            }
            "turn_data_saver_mode_on" => phone.device.data_saver_mode = true,
            "turn_data_saver_mode_off" => phone.device.data_saver_mode = false,
            "unseat_sim_card" => {
                phone.device.sim_card_missing = true;
                phone.search_network();
            }
            "lock_sim_card" => {
                phone.device.sim_card_status = format!("locked_{}", arguments.text("mode"));
                phone.search_network();
            }
            "break_apn_settings" => {
                "broken".clone_into(&mut phone.device.active_apn_settings.apn_name);
                phone.search_network();
            }
            "break_apn_mms_setting" => phone.device.active_apn_settings.mmsc_url = None,
            "break_vpn" => {
                "poor".clone_into(&mut self.vpn);
                phone.connect_vpn(&self.vpn);
                if let Some(vpn) = &mut phone.device.vpn_details {
                    vpn.server_performance.clone_from(&self.vpn);
                }
            }
            "set_wifi_calling" => {
                phone.device.wifi_calling_enabled = arguments.is("enabled");
                if let Value::Bool(over) = arguments.get("mms_over_wifi") {
                    phone.device.wifi_calling_mms_over_wifi = over;
                }
            }
            "remove_app_permission" => {
                let app = phone.device.app_statuses.get_mut(&arguments.text("app_name"));
                let permission = arguments.text("permission").to_lowercase();
                if let Some(slot) = app.and_then(|app| app.permissions.of_name(&permission)) {
                    *slot = false;
                }
            }
            "assert_airplane_mode_status" => return Ok(expected(phone.device.airplane_mode)),
            "assert_service_status" => {
                let status = arguments.text("expected_status");
                return Ok(Value::Bool(phone.device.network_connection_status == status));
            }
            "assert_mobile_data_status" => return Ok(expected(phone.data_works())),
            "assert_mobile_roaming_status" => return Ok(expected(phone.device.roaming_enabled)),
            "assert_mobile_data_saver_mode_status" => return Ok(expected(phone.device.data_saver_mode)),
            "assert_mobile_data_usage_exceeded" => {
                return Ok(expected(phone.surroundings.mobile_data_usage_exceeded));
            }
            "assert_can_send_mms" => return Ok(expected(phone.can_send_mms())),
            "assert_internet_not_excellent" => return Ok(Value::Bool(phone.speed().1 != "Excellent")),
            "assert_internet_speed" => {
                let (speed, description) = phone.speed();
                let is_fast = speed.unwrap_or(0.0) >= float_of(&arguments.get("expected_speed"))?;
                let wanted = arguments.get("expected_desc");
                let is_named = match wanted.as_str() {
                    Some(wanted) => description.to_lowercase() == wanted.to_lowercase(),
                    None => true,
                };
                return Ok(Value::Bool(is_fast && is_named));
            }
            _ => return Err(unknown(name)),
        }
        Ok(Value::None)
    }
}

fn unknown(name: &str) -> Raise {
    Raise::value_error(format!("the domain telecom has no function `{name}`"))
}
