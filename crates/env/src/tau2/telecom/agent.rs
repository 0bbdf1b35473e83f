//! The agent's tools: customers, lines, bills, data.

use serde::Serialize;

use super::super::json::dumps;
use super::db::{Bill, Carrier, Customer, Line, LineItem, Plan, TODAY};
use crate::python::float;
use crate::python::method::{Default, Method, method, optional, required};
use crate::python::values::{Class, Order, Raise, Value, compare, float_of, lower, str_method, two_decimals};

/// Tools in the order of tau2-bench.
pub(super) const METHODS: &[Method] = &[
    method("get_customer_by_phone", &[required("phone_number")]),
    method("get_customer_by_id", &[required("customer_id")]),
    method("get_customer_by_name", &[required("full_name"), required("dob")]),
    method("get_details_by_id", &[required("id")]),
    method("suspend_line", &[required("customer_id"), required("line_id"), required("reason")]),
    method("resume_line", &[required("customer_id"), required("line_id")]),
    method("get_bills_for_customer", &[required("customer_id"), optional("limit", Default::Int(12))]),
    method("send_payment_request", &[required("customer_id"), required("bill_id")]),
    method("get_data_usage", &[required("customer_id"), required("line_id")]),
    method("enable_roaming", &[required("customer_id"), required("line_id")]),
    method("disable_roaming", &[required("customer_id"), required("line_id")]),
    method("transfer_to_human_agents", &[required("summary")]),
    method("refuel_data", &[required("customer_id"), required("line_id"), required("gb_amount")]),
];

const LAST_MONTH: (&str, &str, &str) = ("2025-01-01", "2025-01-31", "2025-01-15");
const NEXT_MONTH: (&str, &str, &str) = ("2025-03-01", "2025-03-31", "2025-03-15");
const CYCLE_END: &str = "2025-02-28";

fn text<T: Serialize + ?Sized>(value: &T) -> Result<String, Raise> {
    dumps(value).map_err(|error| Raise::new(Class::Other, error.to_string()))
}

fn fail<T>(text: impl Into<String>) -> Result<T, Raise> {
    Err(Raise::value_error(text))
}

#[derive(Serialize)]
struct Changed<'a> {
    message: &'static str,
    line: &'a Line,
}

/// A line's data usage, as JSON. The numbers are written as strings, as in tau2-bench.
#[derive(Serialize)]
struct Usage<'a> {
    line_id: &'a str,
    data_used_gb: String,
    data_limit_gb: String,
    data_refueling_gb: String,
    cycle_end_date: &'static str,
}

#[derive(Serialize)]
struct Refueled {
    message: String,
    new_data_refueling_gb: String,
    charge: String,
}

impl Carrier {
    pub(super) fn customer_by_phone(&self, number: &Value) -> Result<&Customer, Raise> {
        for customer in &self.customers {
            if number.as_str() == Some(&customer.phone_number) {
                return Ok(customer);
            }
            for line in &customer.line_ids {
                if number.as_str() == Some(&self.line(&line.as_str().into())?.phone_number) {
                    return Ok(customer);
                }
            }
        }
        fail(format!("Customer with phone number {number} not found"))
    }

    fn customer_place(&self, id: &Value) -> Result<usize, Raise> {
        let found = self.customers.iter().position(|customer| id.as_str() == Some(&customer.customer_id));
        found.ok_or_else(|| Raise::value_error(format!("Customer with ID {id} not found")))
    }

    fn customer(&self, id: &Value) -> Result<&Customer, Raise> {
        self.customer_place(id).map(|place| &self.customers[place])
    }

    pub(super) fn line_by_phone(&self, number: &str) -> Result<&Line, Raise> {
        let found = self.lines.iter().find(|line| line.phone_number == number);
        found.ok_or_else(|| Raise::value_error(format!("Line with phone number {number} not found")))
    }

    fn line_place(&self, id: &Value) -> Result<usize, Raise> {
        let found = self.lines.iter().position(|line| id.as_str() == Some(&line.line_id));
        found.ok_or_else(|| Raise::value_error(format!("Line with ID {id} not found")))
    }

    fn line(&self, id: &Value) -> Result<&Line, Raise> {
        self.line_place(id).map(|place| &self.lines[place])
    }

    pub(super) fn plan(&self, id: &Value) -> Result<&Plan, Raise> {
        let found = self.plans.iter().find(|plan| id.as_str() == Some(&plan.plan_id));
        found.ok_or_else(|| Raise::value_error(format!("Plan with ID {id} not found")))
    }

    fn bill_place(&self, id: &Value) -> Result<usize, Raise> {
        let found = self.bills.iter().position(|bill| id.as_str() == Some(&bill.bill_id));
        found.ok_or_else(|| Raise::value_error(format!("Bill with ID {id} not found")))
    }

    pub(super) fn bill(&self, id: &Value) -> Result<&Bill, Raise> {
        self.bill_place(id).map(|place| &self.bills[place])
    }

    pub(super) fn target(&self, customer: &Value, line: &Value) -> Result<usize, Raise> {
        let known = &self.customer(customer)?.line_ids;
        if !known.iter().any(|known| line.as_str() == Some(known)) {
            return fail(format!("Line {line} not found for customer {customer}"));
        }
        self.line_place(line)
    }

    pub(super) fn target_line(&self, customer: &Value, line: &Value) -> Result<&Line, Raise> {
        self.target(customer, line).map(|place| &self.lines[place])
    }

    pub(super) fn awaiting(&self, customer: &Customer) -> Result<Option<&Bill>, Raise> {
        let mut found = None;
        for id in &customer.bill_ids {
            let bill = self.bill(&id.as_str().into())?;
            if found.is_none() && bill.status == "Awaiting Payment" {
                found = Some(bill);
            }
        }
        Ok(found)
    }

    pub(super) fn set_paid(&mut self, bill: &str) -> Result<(), Raise> {
        let place = self.bill_place(&bill.into())?;
        "Paid".clone_into(&mut self.bills[place].status);
        Ok(())
    }

    fn details(&self, id: &Value) -> Result<String, Raise> {
        match str_method(id, "startswith")?.chars().next() {
            Some('L') => text(self.line(id)?),
            Some('D') => {
                let found = self.devices.iter().find(|device| id.as_str() == Some(&device.device_id));
                match found {
                    Some(device) => text(device),
                    None => fail(format!("Device with ID {id} not found")),
                }
            }
            Some('B') => text(self.bill(id)?),
            Some('C') => text(self.customer(id)?),
            Some('P') => text(self.plan(id)?),
            _ => fail(format!("Unknown ID format or type: {id}")),
        }
    }

    fn bills_of(&self, customer: &Value, limit: &Value) -> Result<String, Raise> {
        let ids = &self.customer(customer)?.bill_ids;
        let mut bills: Vec<&Bill> =
            ids.iter().map(|id| self.bill(&id.as_str().into())).collect::<Result<_, _>>()?;
        bills.sort_by(|one, other| other.issue_date.cmp(&one.issue_date));
        let most = match limit {
            Value::None => bills.len(),
            Value::Int(limit) if *limit < 0 => {
                bills.len().saturating_sub(usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX))
            }
            Value::Int(limit) => usize::try_from(*limit).unwrap_or(usize::MAX),
            Value::Bool(limit) => usize::from(*limit),
            _ => {
                let text = "slice indices must be integers or None or have an __index__ method";
                return Err(Raise::type_error(text));
            }
        };
        bills.truncate(most);
        text(&bills)
    }

    fn usage(&self, customer: &Value, line: &Value) -> Result<String, Raise> {
        let line = self.target_line(customer, line)?;
        let plan = self.plan(&line.plan_id.as_str().into())?;
        text(&Usage {
            line_id: &line.line_id,
            data_used_gb: float(line.data_used_gb),
            data_limit_gb: float(plan.data_limit_gb),
            data_refueling_gb: float(line.data_refueling_gb),
            cycle_end_date: CYCLE_END,
        })
    }

    fn set_roaming(&mut self, customer: &Value, line: &Value, on: bool) -> Result<String, Raise> {
        let place = self.target(customer, line)?;
        let is_so = std::mem::replace(&mut self.lines[place].roaming_enabled, on) == on;
        let word = if on { "enabled" } else { "disabled" };
        Ok(if is_so { format!("Roaming was already {word}") } else { format!("Roaming {word} successfully") })
    }

    fn request_payment(&mut self, customer: &Value, bill: &Value) -> Result<String, Raise> {
        let owner = self.customer(customer)?;
        if self.awaiting(owner)?.is_some() {
            return fail("A bill is already awaiting payment for this customer");
        }
        if !owner.bill_ids.iter().any(|known| bill.as_str() == Some(known)) {
            return fail(format!("Bill {bill} not found for customer {customer}"));
        }
        let place = self.bill_place(bill)?;
        "Awaiting Payment".clone_into(&mut self.bills[place].status);
        Ok(format!("Payment request sent to the customer for bill {bill}"))
    }

    /// Adds an amount to the customer's draft bill. New bills get an id from `made`, the number of
    /// bills created so far, instead of tau2-bench's random id.
    fn charge(
        &mut self,
        customer: &Value,
        amount: f64,
        description: String,
        made: &mut u32,
    ) -> Result<(), Raise> {
        let owner = self.customer_place(customer)?;
        let mut draft = None;
        for id in &self.customers[owner].bill_ids {
            let place = self.bill_place(&id.as_str().into())?;
            if self.bills[place].status == "Draft" {
                draft = Some(place);
                break;
            }
        }
        let place = draft.unwrap_or_else(|| {
            *made += 1;
            let id = format!("B{made:08x}");
            let owner = &mut self.customers[owner];
            self.bills.push(bill(&id, &owner.customer_id, NEXT_MONTH, "Draft"));
            owner.bill_ids.push(id);
            self.bills.len() - 1
        });
        let item_type = if amount < 0.0 { "Credit" } else { "Charge" };
        let bill = &mut self.bills[place];
        bill.line_items.push(item(description, amount, item_type));
        bill.total_due += amount;
        Ok(())
    }

    fn refuel(
        &mut self,
        customer: &Value,
        line: &Value,
        amount: &Value,
        made: &mut u32,
    ) -> Result<String, Raise> {
        let place = self.target(customer, line)?;
        if compare(Order::LessEqual, amount, &Value::Int(0))? {
            return fail("Refuel amount must be positive");
        }
        let price = self.plan(&self.lines[place].plan_id.as_str().into())?.data_refueling_price_per_gb;
        let gigabytes = float_of(amount)?;
        let charge = gigabytes * price;
        self.lines[place].data_refueling_gb += gigabytes;
        let description = format!("Data refueling: {amount} GB at ${}/GB", float(price));
        self.charge(customer, charge, description, made)?;
        let cost = two_decimals(charge);
        text(&Refueled {
            message: format!("Successfully added {amount} GB of data for line {line} for ${cost}"),
            new_data_refueling_gb: float(self.lines[place].data_refueling_gb),
            charge: float(charge),
        })
    }

    fn set_active(&mut self, customer: &Value, line: &Value, active: bool) -> Result<String, Raise> {
        let place = self.target(customer, line)?;
        let line = &mut self.lines[place];
        if active {
            if !["Suspended", "Pending Activation"].contains(&line.status.as_str()) {
                return fail("Line must be suspended to resume");
            }
            "Active".clone_into(&mut line.status);
            line.suspension_start_date = None;
            return text(&Changed { message: "Line resumed successfully", line });
        }
        if line.status != "Active" {
            return fail("Line must be active to suspend");
        }
        "Suspended".clone_into(&mut line.status);
        line.suspension_start_date = Some(TODAY.to_owned());
        text(&Changed { message: "Line suspended successfully. $5/month holding fee will apply.", line })
    }

    /// Suspends a line because of an unpaid bill; a setup action of tasks.
    pub(super) fn suspend_for_bill(
        &mut self,
        customer: &Value,
        line: &Value,
        bill_id: &Value,
        contract_ended: bool,
    ) -> Result<(), Raise> {
        let place = self.line_place(line)?;
        if self.lines[place].status != "Active" {
            return fail("Line must be active to suspend for unpaid bill");
        }
        let amount = self.plan(&self.lines[place].plan_id.as_str().into())?.price_per_month;
        if amount <= 0.0 {
            return fail("Amount must be positive for overdue bill");
        }
        let owner = self.customer_place(customer)?;
        for id in &self.customers[owner].bill_ids {
            if self.bill(&id.as_str().into())?.status == "Overdue" {
                return fail("Customer already has an overdue bill");
            }
        }
        let id = bill_id.to_string();
        let mut overdue = bill(&id, &self.customers[owner].customer_id, LAST_MONTH, "Overdue");
        overdue.line_items.push(item(format!("Charge for line {line}"), amount, "Charge"));
        overdue.total_due += amount;
        self.bills.push(overdue);
        self.customers[owner].bill_ids.push(id);
        let line = &mut self.lines[place];
        "Suspended".clone_into(&mut line.status);
        line.suspension_start_date = Some(TODAY.to_owned());
        if contract_ended {
            line.contract_end_date = Some(LAST_MONTH.1.to_owned());
        }
        Ok(())
    }

    pub(super) fn set_usage(&mut self, customer: &Value, line: &Value, used: &Value) -> Result<(), Raise> {
        let place = self.target(customer, line)?;
        self.lines[place].data_used_gb = float_of(used)?;
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        name: &str,
        arguments: Vec<(String, Value)>,
        made: &mut u32,
    ) -> Result<String, Raise> {
        let method = METHODS
            .iter()
            .find(|method| method.name == name)
            .ok_or_else(|| Raise::value_error(format!("Tool '{name}' not found.")))?;
        let [first, second, third] = method.bind("TelecomTools", Vec::new(), arguments)?.take();
        match name {
            "get_customer_by_phone" => text(self.customer_by_phone(&first)?),
            "get_customer_by_id" => text(self.customer(&first)?),
            "get_customer_by_name" => {
                let mut found = Vec::new();
                for customer in &self.customers {
                    if lower(&customer.full_name) == lower(str_method(&first, "lower")?)
                        && second.as_str() == Some(&customer.date_of_birth)
                    {
                        found.push(customer);
                    }
                }
                text(&found)
            }
            "get_details_by_id" => self.details(&first),
            "suspend_line" => self.set_active(&first, &second, false),
            "resume_line" => self.set_active(&first, &second, true),
            "get_bills_for_customer" => self.bills_of(&first, &second),
            "send_payment_request" => self.request_payment(&first, &second),
            "get_data_usage" => self.usage(&first, &second),
            "enable_roaming" => self.set_roaming(&first, &second, true),
            "disable_roaming" => self.set_roaming(&first, &second, false),
            "refuel_data" => self.refuel(&first, &second, &third, made),
            _ => Ok("Transfer successful".to_owned()),
        }
    }
}

fn bill(id: &str, customer: &str, (start, end, due): (&str, &str, &str), status: &str) -> Bill {
    Bill {
        bill_id: id.to_owned(),
        customer_id: customer.to_owned(),
        period_start: start.to_owned(),
        period_end: end.to_owned(),
        issue_date: start.to_owned(),
        total_due: 0.0,
        due_date: due.to_owned(),
        line_items: Vec::new(),
        status: status.to_owned(),
    }
}

fn item(description: String, amount: f64, item_type: &str) -> LineItem {
    LineItem { description, amount, date: TODAY.to_owned(), item_type: item_type.to_owned() }
}
