//! Validates objects against a subset of JSON Schema.

use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fields {
    pub(crate) known: Vec<Field>,
    open: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    types: Vec<String>,
    /// Allowed values; empty for any.
    values: Vec<Value>,
    pub(crate) required: bool,
}

impl Fields {
    /// Parses the fields of an object except the one named `without`; `None` if the schema has no
    /// `properties`.
    pub(crate) fn read(schema: &Value, without: &str) -> Option<Self> {
        let properties = schema.get("properties")?.as_object()?;
        let required = schema.get("required").and_then(Value::as_array);
        let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        let known = properties
            .iter()
            .filter(|(name, _)| *name != without)
            .map(|(name, schema)| Field::read(name, schema, required.contains(&name.as_str())))
            .collect();
        Some(Self { known, open: schema.get("additionalProperties") != Some(&Value::Bool(false)) })
    }

    pub(crate) fn closed(self) -> Self {
        Self { open: false, ..self }
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.known.iter().position(|field| field.name == name)
    }

    /// Validates an object.
    ///
    /// # Errors
    /// The error names the first invalid or missing field, as a message for the policy.
    pub(crate) fn check(&self, object: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in object {
            match self.position(name) {
                Some(index) => self.known[index].check(value)?,
                None if self.open => {}
                None => return Err(format!("there is no field `{name}`; there are {}", self.names())),
            }
        }
        let missing = self.known.iter().find(|field| field.required && !object.contains_key(&field.name));
        missing.map_or(Ok(()), |field| Err(format!("the field `{}` is missing", field.name)))
    }

    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.known.iter().map(|field| format!("`{}`", field.name)).collect();
        names.join(", ")
    }
}

impl Field {
    fn read(name: &str, schema: &Value, required: bool) -> Self {
        // `Optional[int]` is an `anyOf`.
        let several = schema.get("anyOf").and_then(Value::as_array);
        let parts: Vec<&Value> = several.map_or_else(|| vec![schema], |parts| parts.iter().collect());
        let types: Option<Vec<Vec<String>>> = parts.iter().map(|part| types(part)).collect();
        let values = match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
            (Some(values), _) => values.clone(),
            (None, Some(value)) => vec![value.clone()],
            (None, None) => Vec::new(),
        };
        Self { name: name.to_owned(), types: types.unwrap_or_default().concat(), values, required }
    }

    /// Converts text to a value of this field.
    ///
    /// # Errors
    /// Fails if the field does not allow the value, with a message for the policy.
    pub(crate) fn value(&self, text: &str) -> Result<Value, String> {
        let text_fits = self.types.is_empty() || self.types.iter().any(|known| known == "string");
        let value = if text_fits {
            Value::String(text.to_owned())
        } else {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
        };
        self.check(&value)?;
        Ok(value)
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let fits = |known: &String| match known.as_str() {
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            "null" => value.is_null(),
            _ => true,
        };
        if !self.types.is_empty() && !self.types.iter().any(fits) {
            return Err(format!("`{}` must be of type {}", self.name, self.types.join(" or ")));
        }
        if !self.values.is_empty() && !self.values.contains(value) {
            let known: Vec<String> = self.values.iter().map(Value::to_string).collect();
            return Err(format!("`{}` must be one of {}", self.name, known.join(", ")));
        }
        Ok(())
    }
}

fn types(schema: &Value) -> Option<Vec<String>> {
    match schema.get("type")? {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(several) => several.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_held_against_their_schema() {
        let schema = json!({
            "properties": {"n": {"type": ["integer", "null"]}, "way": {"enum": ["up", "down"]}, "any": {"$ref": "#/x"}},
            "required": ["n"],
        });
        let open = Fields::read(&schema, "").unwrap();
        let check = |fields: &Fields, object: Value| fields.check(object.as_object().unwrap());
        assert_eq!(check(&open, json!({"n": null, "way": "up", "any": [1], "other": 1})), Ok(()));
        for (object, expected) in [
            (json!({}), "the field `n` is missing"),
            (json!({"n": "x"}), "`n` must be of type integer or null"),
            (json!({"n": 1.5}), "`n` must be of type integer or null"),
            (json!({"n": 1, "way": "left"}), "`way` must be one of \"up\", \"down\""),
        ] {
            assert_eq!(check(&open, object).unwrap_err(), expected);
        }
        let error = check(&open.closed(), json!({"n": 1, "other": 1})).unwrap_err();
        assert!(error.contains("no field `other`; there are"), "{error}");
        assert_eq!(Fields::read(&json!({"type": "object"}), ""), None);
    }
}
