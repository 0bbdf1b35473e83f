//! The user's phone and surroundings.

use serde::{Deserialize, Serialize};

use super::super::ordered::Ordered;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AccessPoint {
    pub(super) apn_name: String,
    pub(super) reset_at_reboot: bool,
    pub(super) mms_apn: Option<String>,
    pub(super) mmsc_url: Option<String>,
    pub(super) mms_proxy: Option<String>,
    pub(super) mms_port: Option<i64>,
}

impl Default for AccessPoint {
    fn default() -> Self {
        Self {
            apn_name: "internet".to_owned(),
            reset_at_reboot: false,
            mms_apn: Some("mms".to_owned()),
            mmsc_url: Some("http://mms.carrier.com/mms/wapenc".to_owned()),
            mms_proxy: None,
            mms_port: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vpn {
    #[serde(default)]
    pub(super) server_address: Option<String>,
    #[serde(default)]
    pub(super) protocol: Option<String>,
    #[serde(default = "unknown")]
    pub(super) server_performance: String,
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the original")]
pub(super) struct Permissions {
    pub(super) sms: bool,
    pub(super) storage: bool,
    pub(super) phone: bool,
    pub(super) network: bool,
}

impl Permissions {
    /// Permissions in the order of tau2-bench.
    pub(super) const NAMES: [&'static str; 4] = ["sms", "storage", "phone", "network"];

    pub(super) fn of_name(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "sms" => Some(&mut self.sms),
            "storage" => Some(&mut self.storage),
            "phone" => Some(&mut self.phone),
            "network" => Some(&mut self.network),
            _ => None,
        }
    }

    pub(super) fn granted(mut self) -> Vec<&'static str> {
        Self::NAMES.into_iter().filter(|name| self.of_name(name).is_some_and(|is| *is)).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct App {
    app_name: String,
    #[serde(default)]
    pub(super) permissions: Permissions,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the original")]
pub(super) struct Device {
    pub(super) sim_card_status: String,
    pub(super) sim_card_missing: bool,
    pub(super) airplane_mode: bool,
    pub(super) network_signal_strength: String,
    pub(super) network_technology_connected: String,
    pub(super) network_connection_status: String,
    pub(super) battery_level: i64,
    pub(super) data_enabled: bool,
    pub(super) roaming_enabled: bool,
    pub(super) network_mode_preference: String,
    pub(super) active_apn_settings: AccessPoint,
    pub(super) wifi_enabled: bool,
    pub(super) wifi_connected: bool,
    pub(super) wifi_ssid: Option<String>,
    pub(super) wifi_signal_strength: String,
    pub(super) wifi_calling_enabled: bool,
    pub(super) wifi_calling_mms_over_wifi: bool,
    pub(super) data_saver_mode: bool,
    pub(super) vpn_enabled_setting: bool,
    pub(super) vpn_connected: bool,
    pub(super) vpn_details: Option<Vpn>,
    pub(super) app_statuses: Ordered<App>,
}

impl Default for Device {
    fn default() -> Self {
        let app = |name: &str, sms, phone, network| {
            let permissions = Permissions { sms, storage: true, phone, network };
            (name.to_owned(), App { app_name: name.to_owned(), permissions })
        };
        Self {
            sim_card_status: "active".to_owned(),
            sim_card_missing: false,
            airplane_mode: false,
            network_signal_strength: "good".to_owned(),
            network_technology_connected: "5G".to_owned(),
            network_connection_status: "connected".to_owned(),
            battery_level: 80,
            data_enabled: true,
            roaming_enabled: false,
            network_mode_preference: "4g_5g_preferred".to_owned(),
            active_apn_settings: AccessPoint::default(),
            wifi_enabled: false,
            wifi_connected: false,
            wifi_ssid: None,
            wifi_signal_strength: "none".to_owned(),
            wifi_calling_enabled: false,
            wifi_calling_mms_over_wifi: false,
            data_saver_mode: false,
            vpn_enabled_setting: false,
            vpn_connected: false,
            vpn_details: None,
            app_statuses: [app("messaging", true, true, false), app("browser", false, false, true)]
                .into_iter()
                .collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentRequest {
    pub(super) bill_id: String,
    pub(super) amount_due: f64,
    #[serde(default)]
    pub(super) paid: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the original")]
pub(super) struct Surroundings {
    pub(super) name: Option<String>,
    pub(super) phone_number: Option<String>,
    pub(super) is_abroad: bool,
    pub(super) roaming_allowed: bool,
    pub(super) signal_strength: Ordered<String>,
    pub(super) mobile_data_usage_exceeded: bool,
    pub(super) line_active: bool,
    pub(super) payment_request: Option<PaymentRequest>,
}

impl Default for Surroundings {
    fn default() -> Self {
        let signals = [("2G", "poor"), ("3G", "fair"), ("4G", "good"), ("5G", "excellent")];
        Self {
            name: None,
            phone_number: None,
            is_abroad: false,
            roaming_allowed: false,
            signal_strength: signals
                .map(|(kind, strength)| (kind.to_owned(), strength.to_owned()))
                .into_iter()
                .collect(),
            mobile_data_usage_exceeded: false,
            line_active: true,
            payment_request: None,
        }
    }
}

/// The user's part of an episode's state: the phone and its surroundings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Phone {
    pub(super) device: Device,
    pub(super) surroundings: Surroundings,
}

impl Phone {
    /// Parses the phone's data. The apps keep their order in the file, as in tau2-bench.
    pub(in crate::tau2) fn read(text: &str) -> Result<Self, toml::de::Error> {
        let mut phone: Self = toml::from_str(text)?;
        // TOML tables are sorted by name.
        phone.device.app_statuses.sort_by_key(|name| text.find(&format!("app_statuses.{name}")));
        Ok(phone)
    }
}
