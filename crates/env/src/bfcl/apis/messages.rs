//! `MessageAPI`: messages in a workspace.

use super::{Fields, error};
use crate::python::PythonRandom;
use crate::python::method::{Arguments, Method, method, required};
use crate::python::values::{Dict, Raise, Value, add_in_place, dict, hashable, lower, str_method};

pub(super) const METHODS: &[Method] = &[
    method("list_users", &[]),
    method("get_user_id", &[required("user")]),
    method("message_login", &[required("user_id")]),
    method("message_get_login_status", &[]),
    method("send_message", &[required("receiver_id"), required("message")]),
    method("delete_message", &[required("receiver_id")]),
    method("view_messages_sent", &[]),
    method("add_contact", &[required("user_name")]),
    method("search_messages", &[required("keyword")]),
    method("get_message_stats", &[]),
];

const SEED: u64 = 200_191;

#[derive(Clone, Debug)]
pub(super) struct Messages {
    random: PythonRandom,
    ids: Value,
    user_count: Value,
    users: Dict,
    inbox: Vec<Value>,
    count: Value,
    user: Value,
}

fn entry(message: &Value) -> Result<(&Value, &Value), Raise> {
    let Value::Dict(message) = message else { return Err(Raise::no_attribute(message, "items")) };
    message.iter().next().ok_or_else(|| Raise::new(super::Class::Lookup, "list index out of range"))
}

impl Messages {
    pub(super) fn new(scenario: &Dict) -> Self {
        let fields = Fields(scenario);
        let users = || {
            let users =
                [("Alice", "USR001"), ("Bob", "USR002"), ("Catherine", "USR003"), ("Daniel", "USR004")];
            users.map(|(name, id)| (name.into(), id.into())).into_iter().collect()
        };
        let inbox = || {
            vec![
                dict([("USR002", "My name is Alice. I want to connect.".into())]),
                dict([("USR003", "Could you upload the file?".into())]),
                dict([("USR004", "Could you upload the file?".into())]),
            ]
        };
        Self {
            random: PythonRandom::new(fields.seed(SEED)),
            ids: fields.value("generated_ids", Value::Set(Vec::new())),
            user_count: fields.value("user_count", 4i64),
            users: fields.dict_or("user_map", users),
            inbox: fields.list_or("inbox", inbox),
            count: fields.value("message_count", 3i64),
            user: fields.value("current_user", Value::None),
        }
    }

    pub(super) fn state(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("generated_ids", self.ids.clone()),
            ("user_count", self.user_count.clone()),
            ("user_map", self.users.clone().into()),
            ("inbox", self.inbox.clone().into()),
            ("message_count", self.count.clone()),
            ("current_user", self.user.clone()),
        ]
    }

    pub(super) fn call(&mut self, method: &str, arguments: Arguments) -> Result<Value, Raise> {
        match method {
            "list_users" => {
                let names: Vec<Value> = self.users.keys().cloned().collect();
                Ok(dict([("user_list", names.into())]))
            }
            "get_user_id" => {
                let [user] = arguments.take();
                hashable(&user)?;
                Ok(match self.users.get(&user) {
                    Some(id) => dict([("user_id", id.clone())]),
                    None => error(format!("User '{user}' not found in the workspace.")),
                })
            }
            "message_login" => {
                let [id] = arguments.take();
                let known = self.is_user(&id);
                let text = if known {
                    format!("User '{id}' logged in successfully.")
                } else {
                    format!("User ID '{id}' not found.")
                };
                if known {
                    self.user = id;
                }
                Ok(dict([("login_status", known.into()), ("message", text.into())]))
            }
            "message_get_login_status" => Ok(dict([("login_status", self.user.is_true().into())])),
            "add_contact" => self.add_contact(arguments.take()),
            _ if !self.user.is_true() => Ok(error("No user is currently logged in.")),
            "send_message" => self.send(arguments.take()),
            "delete_message" => self.delete(arguments.take()),
            "view_messages_sent" => self.view(),
            "search_messages" => self.search(arguments.take()),
            _ => self.statistics(),
        }
    }

    fn is_user(&self, id: &Value) -> bool {
        self.users.values().any(|known| known == id)
    }

    fn send(&mut self, [receiver, message]: [Value; 2]) -> Result<Value, Raise> {
        if !self.is_user(&receiver) {
            return Ok(error(format!("Receiver ID '{receiver}' not found.")));
        }
        let id = loop {
            let id = Value::from(10_000 + self.random.below(90_000));
            let Value::Set(ids) = &mut self.ids else { return Err(Raise::no_attribute(&self.ids, "add")) };
            if !ids.contains(&id) {
                ids.push(id.clone());
                break id;
            }
        };
        let text = format!("Message sent to '{receiver}' successfully.");
        self.inbox.push(Value::Dict([(receiver, message)].into_iter().collect()));
        self.count = add_in_place(&self.count, &Value::Int(1))?;
        let id = dict([("new_id", id)]);
        Ok(dict([("sent_status", true.into()), ("message_id", id), ("message", text.into())]))
    }

    fn delete(&mut self, [receiver]: [Value; 1]) -> Result<Value, Raise> {
        for place in (0..self.inbox.len()).rev() {
            let (known, _) = entry(&self.inbox[place])?;
            if *known == receiver {
                let known = known.clone();
                // Like Python's `remove`.
                let first = self.inbox.iter().position(|message| *message == self.inbox[place]);
                self.inbox.remove(first.unwrap_or(place));
                let text = format!("Receiver {receiver}'s latest message deleted successfully.");
                return Ok(dict([
                    ("deleted_status", true.into()),
                    ("receiver_id", known),
                    ("message", text.into()),
                ]));
            }
        }
        Ok(error(format!("Receiver ID {receiver} not found.")))
    }

    fn view(&self) -> Result<Value, Raise> {
        let mut sent = Dict::default();
        for message in &self.inbox {
            let (receiver, text) = entry(message)?;
            match sent.get_mut(receiver) {
                Some(Value::List(texts)) => texts.push(text.clone()),
                _ => sent.insert(receiver.clone(), vec![text.clone()]),
            }
        }
        Ok(dict([("messages", sent.into())]))
    }

    fn add_contact(&mut self, [name]: [Value; 1]) -> Result<Value, Raise> {
        hashable(&name)?;
        if self.users.contains(&name) {
            return Ok(error(format!("User name '{name}' already exists.")));
        }
        self.user_count = add_in_place(&self.user_count, &Value::Int(1))?;
        let id = Value::from(format!("USR{:0>3}", self.user_count.to_string()));
        if self.is_user(&id) {
            return Ok(error(format!("User ID '{id}' already exists.")));
        }
        let text = format!("Contact '{name}' added successfully.");
        self.users.insert(name, id.clone());
        Ok(dict([("added_status", true.into()), ("user_id", id), ("message", text.into())]))
    }

    fn search(&self, [keyword]: [Value; 1]) -> Result<Value, Raise> {
        let keyword = lower(str_method(&keyword, "lower")?);
        let mut found = Vec::new();
        for message in &self.inbox {
            let (receiver, text) = entry(message)?;
            if lower(str_method(text, "lower")?).contains(&keyword) {
                found.push(dict([("receiver_id", receiver.clone()), ("message", text.clone())]));
            }
        }
        Ok(dict([("results", found.into())]))
    }

    fn statistics(&self) -> Result<Value, Raise> {
        let mut contacts: Vec<&Value> = Vec::new();
        for message in &self.inbox {
            let (receiver, _) = entry(message)?;
            if !contacts.contains(&receiver) {
                contacts.push(receiver);
            }
        }
        let counts =
            dict([("received_count", self.inbox.len().into()), ("total_contacts", contacts.len().into())]);
        Ok(dict([("stats", counts)]))
    }
}
