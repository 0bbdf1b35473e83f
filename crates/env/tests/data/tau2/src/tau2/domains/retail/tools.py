"""Signatures of the store's tools, with descriptions made for tests."""


class Store:
    @is_tool(ToolType.READ)
    def calculate(self, expression: str) -> str:
        """
        Calculate.

        Args:
            expression: The expression.
        """

    @is_tool(ToolType.READ)
    def cancel_pending_order(self, order_id: str, reason: str) -> str:
        """
        Cancel pending order.

        Args:
            order_id: The order id.
            reason: The reason.
        """

    @is_tool(ToolType.READ)
    def exchange_delivered_order_items(self, order_id: str, item_ids: List[str], new_item_ids: List[str], payment_method_id: str) -> str:
        """
        Exchange delivered order items.

        Args:
            order_id: The order id.
            item_ids: The item ids.
            new_item_ids: The new item ids.
            payment_method_id: The payment method id.
        """

    @is_tool(ToolType.READ)
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """
        Find user id by name zip.

        Args:
            first_name: The first name.
            last_name: The last name.
            zip: The zip.
        """

    @is_tool(ToolType.READ)
    def find_user_id_by_email(self, email: str) -> str:
        """
        Find user id by email.

        Args:
            email: The email.
        """

    @is_tool(ToolType.READ)
    def get_order_details(self, order_id: str) -> str:
        """
        Get order details.

        Args:
            order_id: The order id.
        """

    @is_tool(ToolType.READ)
    def get_product_details(self, product_id: str) -> str:
        """
        Get product details.

        Args:
            product_id: The product id.
        """

    @is_tool(ToolType.READ)
    def get_item_details(self, item_id: str) -> str:
        """
        Get item details.

        Args:
            item_id: The item id.
        """

    @is_tool(ToolType.READ)
    def get_user_details(self, user_id: str) -> str:
        """
        Get user details.

        Args:
            user_id: The user id.
        """

    @is_tool(ToolType.READ)
    def list_all_product_types(self) -> str:
        """
        List all product types.

        """

    @is_tool(ToolType.READ)
    def modify_pending_order_address(self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str) -> str:
        """
        Modify pending order address.

        Args:
            order_id: The order id.
            address1: The address1.
            address2: The address2.
            city: The city.
            state: The state.
            country: The country.
            zip: The zip.
        """

    @is_tool(ToolType.READ)
    def modify_pending_order_items(self, order_id: str, item_ids: List[str], new_item_ids: List[str], payment_method_id: str) -> str:
        """
        Modify pending order items.

        Args:
            order_id: The order id.
            item_ids: The item ids.
            new_item_ids: The new item ids.
            payment_method_id: The payment method id.
        """

    @is_tool(ToolType.READ)
    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> str:
        """
        Modify pending order payment.

        Args:
            order_id: The order id.
            payment_method_id: The payment method id.
        """

    @is_tool(ToolType.READ)
    def modify_user_address(self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str) -> str:
        """
        Modify user address.

        Args:
            user_id: The user id.
            address1: The address1.
            address2: The address2.
            city: The city.
            state: The state.
            country: The country.
            zip: The zip.
        """

    @is_tool(ToolType.READ)
    def return_delivered_order_items(self, order_id: str, item_ids: List[str], payment_method_id: str) -> str:
        """
        Return delivered order items.

        Args:
            order_id: The order id.
            item_ids: The item ids.
            payment_method_id: The payment method id.
        """

    @is_tool(ToolType.READ)
    def transfer_to_human_agents(self, summary: str) -> str:
        """
        Transfer to human agents.

        Args:
            summary: The summary.
        """
