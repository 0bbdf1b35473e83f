//! The phone's tools, which the agent calls in solo mode.

use super::access_point::read_access_point;
use super::network::on;
use super::phone::{AccessPoint, Permissions, Phone, Vpn};
use crate::python::float;
use crate::python::method::{Method, method, required};
use crate::python::values::{Raise, Value, hashable, str_method};

/// Tools in the order of tau2-bench.
pub(super) const METHODS: &[Method] = &[
    method("check_status_bar", &[]),
    method("check_network_status", &[]),
    method("check_network_mode_preference", &[]),
    method("set_network_mode_preference", &[required("mode")]),
    method("run_speed_test", &[]),
    method("toggle_airplane_mode", &[]),
    method("check_sim_status", &[]),
    method("reseat_sim_card", &[]),
    method("toggle_data", &[]),
    method("toggle_roaming", &[]),
    method("check_data_restriction_status", &[]),
    method("toggle_data_saver_mode", &[]),
    method("check_apn_settings", &[]),
    method("set_apn_settings", &[required("apn_settings")]),
    method("reset_apn_settings", &[]),
    method("check_wifi_status", &[]),
    method("toggle_wifi", &[]),
    method("check_wifi_calling_status", &[]),
    method("toggle_wifi_calling", &[]),
    method("check_vpn_status", &[]),
    method("connect_vpn", &[]),
    method("disconnect_vpn", &[]),
    method("check_installed_apps", &[]),
    method("check_app_status", &[required("app_name")]),
    method("check_app_permissions", &[required("app_name")]),
    method("grant_app_permission", &[required("app_name"), required("permission")]),
    method("can_send_mms", &[]),
    method("reboot_device", &[]),
    method("check_payment_request", &[]),
    method("make_payment", &[]),
];

pub(super) const MODES: [&str; 4] = ["4g_5g_preferred", "4g_only", "3g_only", "2g_only"];

impl Phone {
    fn with_bar(&self, message: impl std::fmt::Display) -> String {
        format!("{message}\nStatus Bar: {}", self.status_bar())
    }

    pub(super) fn toggle_airplane_mode(&mut self) -> bool {
        let device = &mut self.device;
        device.airplane_mode = !device.airplane_mode;
        if device.airplane_mode || device.wifi_enabled {
            device.wifi_connected = false;
            device.wifi_ssid = None;
            "none".clone_into(&mut device.wifi_signal_strength);
        }
        if device.airplane_mode {
            self.disconnect_vpn();
        }
        self.search_network();
        self.device.airplane_mode
    }

    pub(super) fn toggle_data(&mut self) -> bool {
        self.device.data_enabled = !self.device.data_enabled;
        self.search_network();
        self.device.data_enabled
    }

    pub(super) fn toggle_roaming(&mut self) -> bool {
        self.device.roaming_enabled = !self.device.roaming_enabled;
        self.search_network();
        self.device.roaming_enabled
    }

    pub(super) fn connect_vpn(&mut self, performance: &str) -> bool {
        if self.device.vpn_connected {
            return false;
        }
        self.device.vpn_connected = true;
        self.device.vpn_details = Some(Vpn {
            server_address: Some("192.168.1.1".to_owned()),
            protocol: Some("OpenVPN".to_owned()),
            server_performance: performance.to_owned(),
        });
        true
    }

    fn disconnect_vpn(&mut self) -> bool {
        let was = std::mem::replace(&mut self.device.vpn_connected, false);
        if was {
            self.device.vpn_details = None;
        }
        was
    }

    fn vpn_status(&self) -> String {
        if self.device.vpn_connected {
            let Some(vpn) = &self.device.vpn_details else {
                return "VPN is ON and connected (no specific details available).".to_owned();
            };
            let text = |text: &Option<String>| {
                text.as_deref().map_or("None".to_owned(), |text| Value::from(text).repr())
            };
            let level = &vpn.server_performance;
            return format!(
                "VPN is ON and connected. Details: {{'server_address': {}, 'protocol': {}, \
                 'server_performance': <PerformanceLevel.{}: '{level}'>}}",
                text(&vpn.server_address),
                text(&vpn.protocol),
                level.to_uppercase()
            );
        }
        let is_set = self.device.vpn_enabled_setting;
        let text = if is_set {
            "VPN is turned ON in settings, but currently not connected."
        } else {
            "VPN is turned OFF."
        };
        text.to_owned()
    }

    fn wifi_status(&self) -> String {
        let device = &self.device;
        if !device.wifi_enabled {
            "Wi-Fi is turned OFF.".to_owned()
        } else if device.wifi_connected {
            let name = device.wifi_ssid.as_deref().unwrap_or("None");
            let signal = &device.wifi_signal_strength;
            format!("Wi-Fi is ON and connected to '{name}'. Signal strength: {signal}.")
        } else {
            "Wi-Fi is ON but not connected to any network.".to_owned()
        }
    }

    fn toggle_wifi(&mut self) -> String {
        let device = &mut self.device;
        if device.airplane_mode {
            return "Cannot change Wi-Fi settings while Airplane Mode is ON.".to_owned();
        }
        device.wifi_enabled = !device.wifi_enabled;
        if !device.wifi_enabled {
            device.wifi_connected = false;
            device.wifi_ssid = None;
            "none".clone_into(&mut device.wifi_signal_strength);
        }
        format!("Wi-Fi is now {}.", on(device.wifi_enabled))
    }

    /// Returns an app's permissions, or `None` if the app is not installed.
    fn app(&self, name: &Value) -> Result<Option<Permissions>, Raise> {
        hashable(name)?;
        let app = name.as_str().and_then(|name| self.device.app_statuses.get(name));
        Ok(app.map(|app| app.permissions))
    }

    fn app_status(&self, name: &Value) -> Result<String, Raise> {
        let Some(permissions) = self.app(name)? else {
            return Ok(format!("App '{name}' not found on this phone."));
        };
        let mut lines = vec![format!("Status for App: {name}")];
        let granted = permissions.granted();
        if granted.is_empty() {
            lines.push(" - Permissions: None granted.".to_owned());
        } else {
            lines.push(" - Permissions Granted:".to_owned());
            lines.extend(granted.iter().map(|name| format!("   - {name}")));
        }
        Ok(lines.join("\n"))
    }

    fn app_permissions(&self, name: &Value) -> Result<String, Raise> {
        let Some(permissions) = self.app(name)? else {
            return Ok(format!("App '{name}' not found on this phone."));
        };
        let granted = permissions.granted();
        Ok(if granted.is_empty() {
            format!("App '{name}' currently has no permissions granted.")
        } else {
            format!("App '{name}' has permission for: {}.", granted.join(", "))
        })
    }

    fn grant(&mut self, app: &Value, permission: &Value) -> Result<String, Raise> {
        let is_known = self.app(app)?.is_some();
        let permission = str_method(permission, "lower")?.to_lowercase();
        let apps = &mut self.device.app_statuses;
        let found = app.as_str().and_then(|app| apps.get_mut(app));
        let slot = found.and_then(|app| app.permissions.of_name(&permission));
        let message = match slot {
            Some(slot) => {
                *slot = true;
                format!("Success. Permission '{permission}' granted to app '{app}'.")
            }
            None if is_known => {
                let names = Value::List(Permissions::NAMES.map(Value::from).to_vec()).repr();
                format!(
                    "Error. Permission '{permission}' not tracked for app '{app}', available permissions: {names}"
                )
            }
            None => format!("Error. App '{app}' not found. Cannot grant permission."),
        };
        Ok(self.with_bar(message))
    }

    pub(super) fn can_send_mms(&self) -> bool {
        let device = &self.device;
        self.data_works()
            && device.network_technology_connected != "2G"
            && !(device.wifi_calling_enabled && device.wifi_calling_mms_over_wifi)
            && device.active_apn_settings.mmsc_url.is_some()
            && device
                .app_statuses
                .get("messaging")
                .is_some_and(|app| app.permissions.storage && app.permissions.sms)
    }

    fn set_mode(&mut self, mode: &Value) -> Result<String, Raise> {
        let Some(name) = mode.as_str() else { return Err(Raise::no_attribute(mode, "value")) };
        if !MODES.contains(&name) {
            let message = format!(
                "Failed to set network mode: '{name}' is not a valid option. Please use one of: {}",
                MODES.join(", ")
            );
            return Ok(self.with_bar(message));
        }
        name.clone_into(&mut self.device.network_mode_preference);
        self.search_network();
        Ok(self.with_bar(format!("Preferred Network Mode set to: {name}")))
    }

    fn set_access_point(&mut self, settings: &Value) -> Result<String, Raise> {
        self.device.active_apn_settings = read_access_point(settings)?;
        let message = format!("APN settings set to: {}", self.device.active_apn_settings.apn_name);
        self.search_network();
        Ok(self.with_bar(message))
    }

    fn reboot(&mut self) -> String {
        let mut lines = Vec::new();
        if self.device.active_apn_settings.reset_at_reboot {
            lines.push("Resetting APN settings...");
            self.device.active_apn_settings = AccessPoint::default();
        }
        lines.push("Restarting network services...");
        self.search_network();
        self.with_bar(lines.join("\n"))
    }

    /// Executes a tool of the phone. `vpn` is the performance that a new VPN connection gets.
    pub(super) fn call(
        &mut self,
        method: &Method,
        arguments: Vec<(String, Value)>,
        vpn: &str,
    ) -> Result<String, Raise> {
        let [first, second] = method.bind("TelecomUserTools", Vec::new(), arguments)?.take();
        Ok(match method.name {
            "check_status_bar" => format!("Status Bar: {}", self.status_bar()),
            "check_network_status" => self.network_status(),
            "check_network_mode_preference" => {
                format!("Network Mode Preference: {}", self.device.network_mode_preference)
            }
            "set_network_mode_preference" => self.set_mode(&first)?,
            "run_speed_test" => self.speed_test(),
            "toggle_airplane_mode" => {
                let is = self.toggle_airplane_mode();
                self.with_bar(format!("Airplane Mode is now {}.", on(is)))
            }
            "check_sim_status" => match self.sim_status() {
                "active" => "Your SIM card is active and working.",
                "missing" => "No SIM card detected in the phone.",
                "locked_pin" => "The SIM card is locked with a PIN code.",
                _ => "The SIM card is locked with a PUK code.",
            }
            .to_owned(),
            "reseat_sim_card" => {
                self.device.sim_card_missing = false;
                self.search_network();
                self.with_bar("SIM card re-seated successfully.")
            }
            "toggle_data" => {
                let is = self.toggle_data();
                self.with_bar(format!("Mobile Data is now {}.", on(is)))
            }
            "toggle_roaming" => {
                let is = self.toggle_roaming();
                self.with_bar(format!("Data Roaming is now {}.", on(is)))
            }
            "check_data_restriction_status" => {
                let is_on = self.device.data_saver_mode;
                let more = if is_on { " (limits data usage)" } else { "" };
                format!("Data Saver mode is {}{more}.", on(is_on))
            }
            "toggle_data_saver_mode" => {
                self.device.data_saver_mode = !self.device.data_saver_mode;
                self.with_bar(format!("Data Saver Mode is now {}.", on(self.device.data_saver_mode)))
            }
            "check_apn_settings" => {
                let settings = &self.device.active_apn_settings;
                let url = settings.mmsc_url.as_deref().filter(|url| !url.is_empty()).unwrap_or("Not Set");
                format!(
                    "Current APN Name: {}\nMMSC URL (for picture messages): {url}\n\
                     (These are technical settings, usually best left unchanged.)",
                    settings.apn_name
                )
            }
            "set_apn_settings" => self.set_access_point(&first)?,
            "reset_apn_settings" => {
                self.device.active_apn_settings.reset_at_reboot = true;
                self.search_network();
                self.with_bar("APN settings will reset at reboot.")
            }
            "check_wifi_status" => self.wifi_status(),
            "toggle_wifi" => {
                let message = self.toggle_wifi();
                self.with_bar(message)
            }
            "check_wifi_calling_status" => {
                format!("Wi-Fi Calling is currently turned {}.", on(self.device.wifi_calling_enabled))
            }
            "toggle_wifi_calling" => {
                self.device.wifi_calling_enabled = !self.device.wifi_calling_enabled;
                self.with_bar(format!("Wi-Fi Calling is now {}.", on(self.device.wifi_calling_enabled)))
            }
            "check_vpn_status" => self.vpn_status(),
            "connect_vpn" => {
                if self.connect_vpn(vpn) {
                    self.with_bar("VPN connected successfully.")
                } else {
                    "VPN already connected.".to_owned()
                }
            }
            "disconnect_vpn" => {
                let was = self.disconnect_vpn();
                self.with_bar(if was {
                    "VPN disconnected successfully."
                } else {
                    "No active VPN connection to disconnect."
                })
            }
            "check_installed_apps" => {
                let names: Vec<&str> = self.device.app_statuses.iter().map(|(name, _)| name).collect();
                format!("The following apps are installed on the phone: {}", names.join(", "))
            }
            "check_app_status" => self.app_status(&first)?,
            "check_app_permissions" => self.app_permissions(&first)?,
            "grant_app_permission" => self.grant(&first, &second)?,
            "can_send_mms" => {
                let word = if self.can_send_mms() { "can" } else { "cannot" };
                format!("Your messaging app {word} send MMS messages.")
            }
            "reboot_device" => self.reboot(),
            "check_payment_request" => match &self.surroundings.payment_request {
                Some(request) => format!(
                    "You have a payment request for bill {} of {} USD.",
                    request.bill_id,
                    float(request.amount_due)
                ),
                None => "No payment request has been made.".to_owned(),
            },
            _ => match &mut self.surroundings.payment_request {
                Some(request) => {
                    request.paid = true;
                    let amount = float(request.amount_due);
                    format!("Payment of {amount} USD has been made for bill {}.", request.bill_id)
                }
                None => "You do not have a payment request.".to_owned(),
            },
        })
    }
}
