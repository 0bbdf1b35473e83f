//! Access point settings as call arguments.

use super::super::pydantic::{Fault, invalid};
use super::phone::AccessPoint;
use crate::python::values::{Raise, Value, int_of};

const KNOWN: [&str; 6] = ["apn_name", "reset_at_reboot", "mms_apn", "mmsc_url", "mms_proxy", "mms_port"];

/// Reads access point settings with tau2-bench's validation.
pub(super) fn read_access_point(settings: &Value) -> Result<AccessPoint, Raise> {
    let Some(fields) = settings.as_dict() else { return Err(Raise::no_attribute(settings, "apn_name")) };
    let mut read = AccessPoint::default();
    let mut faults = Vec::new();
    let fault = |field, reason, code, input| Fault { field, reason, code, input };
    if let Some(input) = fields.get_str("apn_name") {
        match input.as_str() {
            Some(name @ ("internet" | "broken")) => name.clone_into(&mut read.apn_name),
            _ => faults.push(fault("apn_name", "Input should be 'internet' or 'broken'", "enum", input)),
        }
    }
    if let Some(input) = fields.get_str("reset_at_reboot") {
        match input {
            Value::Bool(value) => read.reset_at_reboot = *value,
            Value::Int(value @ (0 | 1)) => read.reset_at_reboot = *value == 1,
            _ => faults.push(fault("reset_at_reboot", "Input should be a valid boolean", "bool_type", input)),
        }
    }
    for (name, slot) in
        [("mms_apn", &mut read.mms_apn), ("mmsc_url", &mut read.mmsc_url), ("mms_proxy", &mut read.mms_proxy)]
    {
        match fields.get_str(name) {
            None => {}
            Some(Value::None) => *slot = None,
            Some(Value::Str(text)) => *slot = Some(text.clone()),
            Some(input) => faults.push(fault(name, "Input should be a valid string", "string_type", input)),
        }
    }
    match fields.get_str("mms_port") {
        None | Some(Value::None) => {}
        Some(input @ (Value::Int(_) | Value::Str(_))) => match int_of(input) {
            Ok(Value::Int(port)) => read.mms_port = Some(port),
            _ => faults.push(fault(
                "mms_port",
                "Input should be a valid integer, unable to parse string as an integer",
                "int_parsing",
                input,
            )),
        },
        Some(input) => faults.push(fault("mms_port", "Input should be a valid integer", "int_type", input)),
    }
    for (name, input) in fields.iter() {
        if let Some(name) = name.as_str().filter(|name| !KNOWN.contains(name)) {
            faults.push(fault(name, "Extra inputs are not permitted", "extra_forbidden", input));
        }
    }
    if faults.is_empty() { Ok(read) } else { Err(invalid("APNSettings", &faults)) }
}
