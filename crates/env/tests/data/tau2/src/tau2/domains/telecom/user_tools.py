"""Signatures of the phone's tools, with descriptions made for tests."""


class Kit:
    @is_tool(ToolType.READ)
    def check_status_bar(self) -> str:
        """Check status bar."""

    @is_tool(ToolType.READ)
    def check_network_status(self) -> str:
        """Check network status."""

    @is_tool(ToolType.READ)
    def check_network_mode_preference(self) -> str:
        """Check network mode preference."""

    @is_tool(ToolType.READ)
    def set_network_mode_preference(self, mode: Union[Mode, str]) -> str:
        """Set network mode preference."""

    @is_tool(ToolType.READ)
    def run_speed_test(self) -> str:
        """Run speed test."""

    @is_tool(ToolType.READ)
    def toggle_airplane_mode(self) -> str:
        """Toggle airplane mode."""

    @is_tool(ToolType.READ)
    def check_sim_status(self) -> str:
        """Check sim status."""

    @is_tool(ToolType.READ)
    def reseat_sim_card(self) -> str:
        """Reseat sim card."""

    @is_tool(ToolType.READ)
    def toggle_data(self) -> str:
        """Toggle data."""

    @is_tool(ToolType.READ)
    def toggle_roaming(self) -> str:
        """Toggle roaming."""

    @is_tool(ToolType.READ)
    def check_data_restriction_status(self) -> str:
        """Check data restriction status."""

    @is_tool(ToolType.READ)
    def toggle_data_saver_mode(self) -> str:
        """Toggle data saver mode."""

    @is_tool(ToolType.READ)
    def check_apn_settings(self) -> str:
        """Check apn settings."""

    @is_tool(ToolType.READ)
    def set_apn_settings(self, apn_settings: Union[Settings, dict]) -> str:
        """Set apn settings."""

    @is_tool(ToolType.READ)
    def reset_apn_settings(self) -> str:
        """Reset apn settings."""

    @is_tool(ToolType.READ)
    def check_wifi_status(self) -> str:
        """Check wifi status."""

    @is_tool(ToolType.READ)
    def toggle_wifi(self) -> str:
        """Toggle wifi."""

    @is_tool(ToolType.READ)
    def check_wifi_calling_status(self) -> str:
        """Check wifi calling status."""

    @is_tool(ToolType.READ)
    def toggle_wifi_calling(self) -> str:
        """Toggle wifi calling."""

    @is_tool(ToolType.READ)
    def check_vpn_status(self) -> str:
        """Check vpn status."""

    @is_tool(ToolType.READ)
    def connect_vpn(self) -> str:
        """Connect vpn."""

    @is_tool(ToolType.READ)
    def disconnect_vpn(self) -> str:
        """Disconnect vpn."""

    @is_tool(ToolType.READ)
    def check_installed_apps(self) -> str:
        """Check installed apps."""

    @is_tool(ToolType.READ)
    def check_app_status(self, app_name: str) -> str:
        """Check app status."""

    @is_tool(ToolType.READ)
    def check_app_permissions(self, app_name: str) -> str:
        """Check app permissions."""

    @is_tool(ToolType.READ)
    def grant_app_permission(self, app_name: str, permission: str) -> str:
        """Grant app permission."""

    @is_tool(ToolType.READ)
    def can_send_mms(self) -> str:
        """Can send mms."""

    @is_tool(ToolType.READ)
    def reboot_device(self) -> str:
        """Reboot device."""

    @is_tool(ToolType.READ)
    def check_payment_request(self) -> str:
        """Check payment request."""

    @is_tool(ToolType.READ)
    def make_payment(self) -> str:
        """Make payment."""
