//! The carrier's database.

use serde::{Deserialize, Serialize};

/// The date of all episodes.
pub(super) const TODAY: &str = "2025-02-25";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Address {
    street: String,
    city: String,
    state: String,
    zip_code: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub(super) plan_id: String,
    pub(super) name: String,
    pub(super) data_limit_gb: f64,
    pub(super) price_per_month: f64,
    pub(super) data_refueling_price_per_gb: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Device {
    pub(super) device_id: String,
    device_type: String,
    model: String,
    #[serde(default)]
    imei: Option<String>,
    is_esim_capable: bool,
    #[serde(default)]
    activated: bool,
    #[serde(default, deserialize_with = "moment")]
    activation_date: Option<String>,
    #[serde(default, deserialize_with = "moment")]
    last_esim_transfer_date: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) line_id: String,
    pub(super) phone_number: String,
    #[serde(default = "pending_activation")]
    pub(super) status: String,
    pub(super) plan_id: String,
    #[serde(default)]
    device_id: Option<String>,
    #[serde(default)]
    pub(super) data_used_gb: f64,
    #[serde(default)]
    pub(super) data_refueling_gb: f64,
    #[serde(default)]
    pub(super) roaming_enabled: bool,
    #[serde(default)]
    pub(super) contract_end_date: Option<String>,
    #[serde(default)]
    last_plan_change_date: Option<String>,
    #[serde(default)]
    last_sim_replacement_date: Option<String>,
    #[serde(default)]
    pub(super) suspension_start_date: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LineItem {
    pub(super) description: String,
    pub(super) amount: f64,
    pub(super) date: String,
    pub(super) item_type: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bill {
    pub(super) bill_id: String,
    pub(super) customer_id: String,
    pub(super) period_start: String,
    pub(super) period_end: String,
    pub(super) issue_date: String,
    pub(super) total_due: f64,
    pub(super) due_date: String,
    #[serde(default)]
    pub(super) line_items: Vec<LineItem>,
    #[serde(default = "draft")]
    pub(super) status: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentMethod {
    method_type: String,
    account_number_last_4: String,
    expiration_date: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Customer {
    pub(super) customer_id: String,
    pub(super) full_name: String,
    pub(super) date_of_birth: String,
    email: String,
    pub(super) phone_number: String,
    address: Address,
    #[serde(default = "pending_verification")]
    account_status: String,
    #[serde(default)]
    payment_methods: Vec<PaymentMethod>,
    #[serde(default)]
    pub(super) line_ids: Vec<String>,
    #[serde(default)]
    pub(super) bill_ids: Vec<String>,
    #[serde(default = "first_day", deserialize_with = "moment")]
    created_at: Option<String>,
    #[serde(default)]
    last_extension_date: Option<String>,
    #[serde(default)]
    goodwill_credit_used_this_year: f64,
}

/// The carrier's database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Carrier {
    pub(super) plans: Vec<Plan>,
    pub(super) customers: Vec<Customer>,
    pub(super) lines: Vec<Line>,
    pub(super) bills: Vec<Bill>,
    pub(super) devices: Vec<Device>,
}

fn pending_activation() -> String {
    "Pending Activation".to_owned()
}

fn pending_verification() -> String {
    "Pending Verification".to_owned()
}

fn draft() -> String {
    "Draft".to_owned()
}

#[expect(clippy::unnecessary_wraps, reason = "the default of a field that is read as an option")]
fn first_day() -> Option<String> {
    Some("2025-01-01".to_owned())
}

fn moment<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(|text| text.replace('T', " ")))
}
