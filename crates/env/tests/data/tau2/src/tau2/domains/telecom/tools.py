"""Signatures of the carrier's tools, with descriptions made for tests."""


class Kit:
    @is_tool(ToolType.READ)
    def get_customer_by_phone(self, phone_number: str) -> str:
        """Get customer by phone."""

    @is_tool(ToolType.READ)
    def get_customer_by_id(self, customer_id: str) -> str:
        """Get customer by id."""

    @is_tool(ToolType.READ)
    def get_customer_by_name(self, full_name: str, dob: str) -> str:
        """Get customer by name."""

    @is_tool(ToolType.READ)
    def get_details_by_id(self, id: str) -> str:
        """Get details by id."""

    @is_tool(ToolType.READ)
    def suspend_line(self, customer_id: str, line_id: str, reason: str) -> str:
        """Suspend line."""

    @is_tool(ToolType.READ)
    def resume_line(self, customer_id: str, line_id: str) -> str:
        """Resume line."""

    @is_tool(ToolType.READ)
    def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> str:
        """Get bills for customer."""

    @is_tool(ToolType.READ)
    def send_payment_request(self, customer_id: str, bill_id: str) -> str:
        """Send payment request."""

    @is_tool(ToolType.READ)
    def get_data_usage(self, customer_id: str, line_id: str) -> str:
        """Get data usage."""

    @is_tool(ToolType.READ)
    def enable_roaming(self, customer_id: str, line_id: str) -> str:
        """Enable roaming."""

    @is_tool(ToolType.READ)
    def disable_roaming(self, customer_id: str, line_id: str) -> str:
        """Disable roaming."""

    @is_tool(ToolType.READ)
    def transfer_to_human_agents(self, summary: str) -> str:
        """Transfer to human agents."""

    @is_tool(ToolType.READ)
    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> str:
        """Refuel data."""
