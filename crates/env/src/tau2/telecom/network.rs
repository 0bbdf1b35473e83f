//! The phone's network: status, search and speed.

use super::phone::Phone;
use crate::python::values::two_decimals;

pub(super) fn on(is: bool) -> &'static str {
    if is { "ON" } else { "OFF" }
}

fn yes(is: bool) -> &'static str {
    if is { "Yes" } else { "No" }
}

impl Phone {
    pub(super) fn sim_status(&self) -> &str {
        if self.device.sim_card_missing { "missing" } else { &self.device.sim_card_status }
    }

    pub(super) fn status_bar(&self) -> String {
        let device = &self.device;
        let mut shown: Vec<String> = Vec::new();
        if device.airplane_mode {
            shown.push("✈️ Airplane Mode".into());
        } else {
            let signal = match device.network_signal_strength.as_str() {
                "poor" => "📶¹ Poor",
                "fair" => "📶² Fair",
                "good" => "📶³ Good",
                "excellent" => "📶⁴ Excellent",
                _ => "📵 No Signal",
            };
            shown.push(signal.into());
            let is_connected = device.network_technology_connected != "none";
            if is_connected {
                shown.push(device.network_technology_connected.clone());
            }
            if device.data_enabled && is_connected {
                shown.push("📱 Data Enabled".into());
                if device.data_saver_mode {
                    shown.push("🔽 Data Saver".into());
                }
            } else {
                shown.push("📵 Data Disabled".into());
            }
        }
        if device.wifi_enabled && device.wifi_connected {
            shown.push(match device.wifi_ssid.as_deref() {
                Some(name) if !name.is_empty() => format!("📡 Connected to {name}"),
                _ => "📡 Enabled".into(),
            });
        }
        if device.vpn_connected {
            shown.push("🔒 VPN Connected".into());
        }
        shown.push(format!("🔋 {}%", device.battery_level));
        shown.join(" | ")
    }

    pub(super) fn network_status(&self) -> String {
        let device = &self.device;
        let mut lines = vec![
            format!("Airplane Mode: {}", on(device.airplane_mode)),
            format!("SIM Card Status: {}", self.sim_status()),
            format!("Cellular Connection: {}", device.network_connection_status),
            format!("Cellular Signal: {}", device.network_signal_strength),
            format!("Cellular Network Type: {}", device.network_technology_connected),
            format!("Mobile Data Enabled: {}", yes(device.data_enabled)),
            format!("Data Roaming Enabled: {}", yes(device.roaming_enabled)),
            format!("Wi-Fi Radio: {}", on(device.wifi_enabled)),
            format!("Wi-Fi Connected: {}", yes(device.wifi_connected)),
        ];
        if device.wifi_connected {
            let name = device.wifi_ssid.as_deref().unwrap_or("None");
            lines.push(format!("Connected Wi-Fi Network: {name}"));
        }
        lines.join("\n")
    }

    pub(super) fn search_network(&mut self) {
        let signal = |kind: &str| {
            self.surroundings.signal_strength.get(kind).cloned().unwrap_or_else(|| "none".to_owned())
        };
        let technology = match self.device.network_mode_preference.as_str() {
            "4g_5g_preferred" if signal("5G") != "none" => "5G",
            "3g_only" => "3G",
            "2g_only" => "2G",
            _ => "4G",
        };
        let is_out = self.sim_status() != "active"
            || self.device.airplane_mode
            || self.device.active_apn_settings.apn_name == "broken"
            || !self.surroundings.line_active;
        let (status, technology, strength) = if is_out {
            ("no_service", "none", "none".to_owned())
        } else {
            ("connected", technology, signal(technology))
        };
        status.clone_into(&mut self.device.network_connection_status);
        technology.clone_into(&mut self.device.network_technology_connected);
        self.device.network_signal_strength = strength;
    }

    pub(super) fn data_works(&self) -> bool {
        let (device, around) = (&self.device, &self.surroundings);
        !device.airplane_mode
            && device.network_signal_strength != "none"
            && device.network_connection_status != "no_service"
            && (!around.is_abroad || (device.roaming_enabled && around.roaming_allowed))
            && device.data_enabled
            && !around.mobile_data_usage_exceeded
    }

    /// Returns the speed in Mbit/s (`None` without a connection) and its description.
    pub(super) fn speed(&self) -> (Option<f64>, &'static str) {
        if !self.data_works() {
            return (None, "No Connection");
        }
        let device = &self.device;
        let vpn = device.vpn_details.as_ref();
        let is_slow = device.vpn_connected && vpn.is_some_and(|vpn| vpn.server_performance == "poor");
        let mut base = if is_slow { 0.1 } else { 1.0 };
        if device.data_saver_mode {
            base *= 0.2;
        }
        let (least, most) = match device.network_technology_connected.as_str() {
            "2G" => (0.1, 0.4),
            "3G" => (1.0, 5.0),
            "4G" => (10.0, 100.0),
            "5G" => (50.0, 500.0),
            _ => (0.0, 0.0),
        };
        let signal = match device.network_signal_strength.as_str() {
            "poor" => 0.2,
            "fair" => 0.5,
            "good" => 0.8,
            "excellent" => 1.0,
            _ => 0.0,
        };
        let speed: f64 = f64::midpoint(least, most) * signal * base;
        let speed = format!("{speed:.2}").parse().unwrap_or(speed);
        let description = match speed {
            speed if speed < 1.0 => "Very Poor",
            speed if speed < 5.0 => "Poor",
            speed if speed < 25.0 => "Fair",
            speed if speed < 100.0 => "Good",
            _ => "Excellent",
        };
        (Some(speed), description)
    }

    pub(super) fn speed_test(&self) -> String {
        let (speed, description) = self.speed();
        let Some(speed) = speed else { return format!("Speed test failed: {description}.") };
        let advice = match description {
            "Very Poor" => "Connection is very slow. Basic web browsing might be difficult.",
            "Poor" => "Connection is slow. Web browsing may be sluggish, streaming difficult.",
            "Fair" => "Connection is okay for web browsing and some standard definition streaming.",
            "Good" => "Connection is good for most activities, including HD streaming.",
            _ => "Connection is very fast.",
        };
        format!("Speed Test Result: {} Mbps ({description}). {advice}", two_decimals(speed))
    }
}
