//! `TicketAPI`: support tickets.

use super::{Fields, error};
use crate::python::method::{Arguments, Default, Method, method, optional, required};
use crate::python::values::{Dict, Order, Raise, Value, add_in_place, compare, dict, lower, str_method};

pub(super) const METHODS: &[Method] = &[
    method(
        "create_ticket",
        &[
            required("title"),
            optional("description", Default::Str("")),
            optional("priority", Default::Int(1)),
        ],
    ),
    method("get_ticket", &[required("ticket_id")]),
    method("close_ticket", &[required("ticket_id")]),
    method("resolve_ticket", &[required("ticket_id"), required("resolution")]),
    method("edit_ticket", &[required("ticket_id"), required("updates")]),
    method("ticket_login", &[required("username"), required("password")]),
    method("ticket_get_login_status", &[]),
    method("logout", &[]),
    method("get_user_tickets", &[optional("status", Default::None)]),
];

const EDITABLE: [&str; 4] = ["title", "description", "status", "priority"];

#[derive(Clone, Debug)]
pub(super) struct Tickets {
    queue: Vec<Value>,
    counter: Value,
    user: Value,
}

fn field<'a>(ticket: &'a Value, name: &str) -> Result<&'a Value, Raise> {
    ticket.as_dict().and_then(|ticket| ticket.get_str(name)).ok_or_else(|| Raise::key_error(&name.into()))
}

impl Tickets {
    pub(super) fn new(scenario: &Dict) -> Self {
        let fields = Fields(scenario);
        Self {
            queue: fields.list("ticket_queue"),
            counter: fields.value("ticket_counter", 1i64),
            user: fields.value("current_user", Value::None),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("ticket_queue", self.queue.clone().into()),
            ("ticket_counter", self.counter.clone()),
            ("current_user", self.user.clone()),
        ]
    }

    pub(super) fn call(&mut self, method: &str, arguments: Arguments) -> Result<Value, Raise> {
        match method {
            "create_ticket" => self.create(arguments.take()),
            "get_ticket" => {
                let [id] = arguments.take();
                Ok(match self.find(&id)? {
                    Some(place) => self.queue[place].clone(),
                    None => not_found(&id),
                })
            }
            "close_ticket" => {
                let [id] = arguments.take();
                self.finish(&id, "Closed", "closed", None)
            }
            "resolve_ticket" => {
                let [id, resolution] = arguments.take();
                self.finish(&id, "Resolved", "resolved", Some(resolution))
            }
            "edit_ticket" => self.edit(arguments.take()),
            "ticket_login" => {
                let [name, password] = arguments.take();
                let success = name.is_true() && password.is_true();
                if success {
                    self.user = name;
                }
                Ok(dict([("success", success.into())]))
            }
            "ticket_get_login_status" => Ok(dict([("login_status", self.user.is_true().into())])),
            "logout" => {
                let success = self.user.is_true();
                if success {
                    self.user = Value::None;
                }
                Ok(dict([("success", success.into())]))
            }
            _ => self.of_user(arguments.take()),
        }
    }

    fn find(&self, id: &Value) -> Result<Option<usize>, Raise> {
        for (place, ticket) in self.queue.iter().enumerate() {
            if field(ticket, "id")? == id {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn set(&mut self, place: usize, key: impl Into<Value>, value: impl Into<Value>) {
        if let Value::Dict(ticket) = &mut self.queue[place] {
            ticket.insert(key, value);
        }
    }

    fn create(&mut self, [title, description, priority]: [Value; 3]) -> Result<Value, Raise> {
        if !self.user.is_true() {
            return Ok(error("User not authenticated. Please log in to create a ticket."));
        }
        if compare(Order::Less, &priority, &Value::Int(1))?
            || compare(Order::Greater, &priority, &Value::Int(5))?
        {
            return Ok(error("Invalid priority. Priority must be between 1 and 5."));
        }
        let ticket = dict([
            ("id", self.counter.clone()),
            ("title", title),
            ("description", description),
            ("status", "Open".into()),
            ("priority", priority),
            ("created_by", self.user.clone()),
        ]);
        self.queue.push(ticket.clone());
        self.counter = add_in_place(&self.counter, &Value::Int(1))?;
        Ok(ticket)
    }

    fn finish(
        &mut self,
        id: &Value,
        status: &str,
        word: &str,
        resolution: Option<Value>,
    ) -> Result<Value, Raise> {
        let Some(place) = self.find(id)? else { return Ok(not_found(id)) };
        if field(&self.queue[place], "status")?.as_str() == Some(status) {
            return Ok(error(format!("Ticket with ID {id} is already {word}.")));
        }
        self.set(place, "status", status);
        if let Some(resolution) = resolution {
            self.set(place, "resolution", resolution);
        }
        Ok(dict([("status", format!("Ticket {id} has been {word} successfully.").into())]))
    }

    fn edit(&mut self, [id, updates]: [Value; 2]) -> Result<Value, Raise> {
        let Some(place) = self.find(&id)? else { return Ok(not_found(&id)) };
        let Value::Dict(updates) = updates else { return Err(Raise::no_attribute(&updates, "keys")) };
        let unknown: Vec<&Value> =
            updates.keys().filter(|key| !key.as_str().is_some_and(|key| EDITABLE.contains(&key))).collect();
        if !unknown.is_empty() {
            let mut names = Vec::new();
            for (place, key) in unknown.into_iter().enumerate() {
                names.push(key.as_str().ok_or_else(|| {
                    let name = key.type_name();
                    Raise::type_error(format!("sequence item {place}: expected str instance, {name} found"))
                })?);
            }
            return Ok(error(format!("Invalid fields for update: {}", names.join(", "))));
        }
        for (key, value) in updates {
            if !matches!(value, Value::None) {
                self.set(place, key, value);
            }
        }
        Ok(dict([("status", format!("Ticket {id} has been updated successfully.").into())]))
    }

    fn of_user(&self, [status]: [Value; 1]) -> Result<Value, Raise> {
        if !self.user.is_true() {
            return Ok(Value::List(vec![error("User not authenticated. Please log in to view tickets.")]));
        }
        let mut found = Vec::new();
        for ticket in &self.queue {
            if *field(ticket, "created_by")? == self.user {
                found.push(ticket);
            }
        }
        if status.is_true() {
            let mut kept = Vec::new();
            for ticket in found {
                let of_ticket = lower(str_method(field(ticket, "status")?, "lower")?);
                if of_ticket == lower(str_method(&status, "lower")?) {
                    kept.push(ticket);
                }
            }
            found = kept;
        }
        Ok(Value::List(found.into_iter().cloned().collect()))
    }
}

fn not_found(id: &Value) -> Value {
    error(format!("Ticket with ID {id} not found."))
}
