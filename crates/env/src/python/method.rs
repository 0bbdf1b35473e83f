//! Methods of Python APIs, and how arguments bind to parameters.

use super::values::{Raise, Value};

/// A Python method that models may call.
#[derive(Debug)]
pub struct Method {
    /// Method name.
    pub name: &'static str,
    /// Parameters in order.
    pub parameters: &'static [Parameter],
}

/// A method's parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Parameter name.
    pub name: &'static str,
    /// Default value; a parameter without one is required.
    pub default: Option<Default>,
}

/// A parameter's default.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// `None`
    None,
    /// `False`
    False,
    /// An integer.
    Int(i64),
    /// A string.
    Str(&'static str),
    /// `[]`
    List,
}

impl Default {
    fn value(self) -> Value {
        match self {
            Self::None => Value::None,
            Self::False => Value::Bool(false),
            Self::Int(value) => Value::Int(value),
            Self::Str(text) => text.into(),
            Self::List => Value::List(Vec::new()),
        }
    }
}

pub(crate) const fn method(name: &'static str, parameters: &'static [Parameter]) -> Method {
    Method { name, parameters }
}

pub(crate) const fn required(name: &'static str) -> Parameter {
    Parameter { name, default: None }
}

pub(crate) const fn optional(name: &'static str, default: Default) -> Parameter {
    Parameter { name, default: Some(default) }
}

/// A call's arguments, one per parameter.
#[derive(Debug)]
pub struct Arguments {
    values: Vec<Value>,
    /// Bit mask of the parameters for which the call gave an argument; the others have their
    /// default.
    given: u32,
}

impl Arguments {
    /// Returns the values. `N` must be at least the number of parameters; additional values are
    /// `None`.
    pub(crate) fn take<const N: usize>(self) -> [Value; N] {
        let mut values = self.values.into_iter();
        std::array::from_fn(|_| values.next().unwrap_or_default())
    }

    pub(crate) fn is_given(&self, place: usize) -> bool {
        self.given & (1 << place) != 0
    }
}

impl Method {
    /// Assigns arguments to parameters as Python does. `class` is the class name that error
    /// messages contain.
    ///
    /// # Errors
    /// Returns a `TypeError` for unknown, repeated, surplus or missing arguments.
    pub fn bind(
        &self,
        class: &str,
        arguments: Vec<Value>,
        keywords: Vec<(String, Value)>,
    ) -> Result<Arguments, Raise> {
        let parameters = self.parameters;
        let fault = |text: String| Raise::type_error(format!("{class}.{}() {text}", self.name));
        let positional = arguments.len();
        let mut slots: Vec<Option<Value>> = arguments.into_iter().map(Some).take(parameters.len()).collect();
        slots.resize_with(parameters.len(), || None);
        for (name, value) in keywords {
            let Some(place) = parameters.iter().position(|parameter| parameter.name == name) else {
                return Err(fault(match name.as_str() {
                    "self" => "got multiple values for argument 'self'".to_owned(),
                    _ => format!("got an unexpected keyword argument '{name}'"),
                }));
            };
            if slots[place].is_some() {
                return Err(fault(format!("got multiple values for argument '{name}'")));
            }
            slots[place] = Some(value);
        }
        if positional > parameters.len() {
            return Err(fault(self.too_many(positional)));
        }
        let mut given = 0;
        let mut missing = Vec::new();
        let mut values = Vec::with_capacity(parameters.len());
        for (place, (slot, parameter)) in slots.into_iter().zip(parameters).enumerate() {
            match (slot, parameter.default) {
                (Some(value), _) => {
                    given |= 1 << place;
                    values.push(value);
                }
                (None, Some(default)) => values.push(default.value()),
                (None, None) => missing.push(format!("'{}'", parameter.name)),
            }
        }
        if missing.is_empty() {
            return Ok(Arguments { values, given });
        }
        let names = match missing.as_slice() {
            [name] => name.clone(),
            [one, other] => format!("{one} and {other}"),
            [first @ .., last] => format!("{}, and {last}", first.join(", ")),
            [] => String::new(),
        };
        let plural = if missing.len() == 1 { "" } else { "s" };
        Err(fault(format!("missing {} required positional argument{plural}: {names}", missing.len())))
    }

    fn too_many(&self, positional: usize) -> String {
        let most = self.parameters.len() + 1;
        let defaults = self.parameters.iter().filter(|parameter| parameter.default.is_some()).count();
        let (takes, plural) = if defaults == 0 {
            (most.to_string(), if most == 1 { "" } else { "s" })
        } else {
            (format!("from {} to {most}", most - defaults), "s")
        };
        format!("takes {takes} positional argument{plural} but {} were given", positional + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Method = method(
        "f",
        &[required("a"), required("b"), optional("c", Default::Int(7)), optional("d", Default::List)],
    );

    fn bind(arguments: &[i64], keywords: &[(&str, i64)]) -> Result<String, String> {
        let keywords =
            keywords.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
        let arguments = arguments.iter().copied().map(Value::Int).collect();
        match METHOD.bind("K", arguments, keywords) {
            Ok(bound) => {
                let given = bound.given;
                Ok(format!("{} {given:04b}", Value::List(bound.take::<4>().to_vec())))
            }
            Err(raise) => Err(raise.text),
        }
    }

    const THREE: Method = method("g", &[required("a"), required("b"), required("c")]);

    #[test]
    fn arguments_are_matched_as_python_does() {
        assert_eq!(bind(&[1], &[("b", 2)]).unwrap(), "[1, 2, 7, []] 0011");
        assert_eq!(bind(&[1, 2, 3], &[("d", 4)]).unwrap(), "[1, 2, 3, 4] 1111");
        for (arguments, keywords, expected) in [
            (&[][..], &[][..], "K.f() missing 2 required positional arguments: 'a' and 'b'"),
            (&[1], &[], "K.f() missing 1 required positional argument: 'b'"),
            (&[1, 2], &[("x", 1)], "K.f() got an unexpected keyword argument 'x'"),
            (&[1, 2], &[("a", 1)], "K.f() got multiple values for argument 'a'"),
            (&[1, 2, 3, 4, 5], &[], "K.f() takes from 3 to 5 positional arguments but 6 were given"),
            (&[1, 2, 3, 4, 5], &[("x", 1)], "K.f() got an unexpected keyword argument 'x'"),
        ] {
            assert_eq!(bind(arguments, keywords).unwrap_err(), expected);
        }
        let none = method("g", &[]).bind("K", vec![Value::None], Vec::new()).unwrap_err();
        assert_eq!(none.text, "K.g() takes 1 positional argument but 2 were given");
        let raised = THREE.bind("K", Vec::new(), Vec::new()).unwrap_err();
        assert_eq!(raised.text, "K.g() missing 3 required positional arguments: 'a', 'b', and 'c'");
    }
}
