//! Chat templates of hub models, written in Jinja and rendered as in `transformers`.
//!
//! Adds block trimming, `raise_exception`, `strftime_now`, `generation` tags, and Python's
//! formatting and string methods to `minijinja`. These features are rejected, with their line in
//! the error:
//!
//! * `continue_final_message`, `%` formatting (use the filter `format`), `-x.y` (use `-(x.y)`);
//! * blocks, other files, `cycler`, `joiner`, `varargs`, rounding methods;
//! * the filters `truncate`, `wordwrap`, `center`, `wordcount`, `striptags`, `random`,
//!   `filesizeformat`, and a third argument of `join` and `replace`;
//! * invalid numbers, the length of undefined values, and string methods missing from
//!   [`minijinja_contrib::pycompat`].
//!
//! Other differences from `transformers` cause no error:
//!
//! * Images and documents are not supported, tuples are lists, and `\U` is not decoded.
//! * `is sequence` is false for slices, `true is number` is false, and `7 % -3` is 1.
//! * `{% autoescape %}` escapes nothing, and a loop over `none` runs zero times.

mod checked;
mod clock;
mod expression;
mod format;
mod limits;
mod python;
mod source;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt::Display;
use std::path::PathBuf;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, ErrorKind, State, Value};

pub use format::{Answered, Call, ChatFormat, ChatSettings, Stretch};

use crate::TextError;
use crate::whole::wrong;

/// Default time for `strftime_now`: 26 July 2024, the fallback date in Llama's templates.
pub(crate) const FIXED_TIME: i64 = 1_721_952_000;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Message(Value);

impl Message {
    /// Creates a message with text content.
    pub fn new(role: &str, content: &str) -> Self {
        Self([("role", Value::from(role)), ("content", Value::from(content))].into_iter().collect())
    }

    /// Creates a user message.
    pub fn user(content: &str) -> Self {
        Self::new("user", content)
    }

    /// Creates an assistant message.
    pub fn assistant(content: &str) -> Self {
        Self::new("assistant", content)
    }

    /// Creates a system message.
    pub fn system(content: &str) -> Self {
        Self::new("system", content)
    }

    pub(crate) fn is_system(&self) -> bool {
        self.0.get_attr("role").is_ok_and(|role| role.as_str() == Some("system"))
    }

    /// Parses a message from JSON, keeping all keys. Reasoning may be in `reasoning_content`,
    /// `thinking` or `reasoning`.
    ///
    /// # Errors
    /// Returns [`TextError::Chat`] if the text is not a JSON object with a `role`.
    pub fn from_json(json: &str) -> Result<Self, TextError> {
        let message = value_of(json, "a message")?;
        if message.kind() != ValueKind::Map || message.get_attr("role").is_ok_and(|role| role.is_undefined())
        {
            return Err(TextError::Chat("a message is an object with `role` and `content`".into()));
        }
        Ok(Self(with_reasoning(message)))
    }
}

fn with_reasoning(message: Value) -> Value {
    let given =
        |key: &str| message.get_attr(key).ok().filter(|value| !value.is_undefined() && !value.is_none());
    let Some(reasoning) = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(given) else {
        return message;
    };
    let mut entries: Vec<(Value, Value)> = Vec::new();
    if message.get_attr("thinking").is_ok_and(|value| value.is_undefined()) {
        entries.push((Value::from("thinking"), reasoning.clone()));
    }
    for key in message.try_iter().into_iter().flatten() {
        if key.as_str() != Some("reasoning_content") {
            entries.push((key.clone(), message.get_item(&key).unwrap_or_default()));
        }
    }
    entries.push((Value::from("reasoning_content"), reasoning));
    entries.into_iter().collect()
}

/// JSON schema of a tool, with its keys in the original order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool(Value);

impl Tool {
    /// Parses a tool from JSON.
    ///
    /// # Errors
    /// Returns [`TextError::Chat`] if the text is not JSON.
    pub fn from_json(json: &str) -> Result<Self, TextError> {
        Ok(Self(value_of(json, "a tool")?))
    }
}

fn value_of(json: &str, what: &str) -> Result<Value, TextError> {
    serde_json::from_str(json).map_err(|error| TextError::Chat(format!("{what} is not JSON: {error}")))
}

/// Rendering options.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Append the start of the model's next reply.
    pub add_generation_prompt: bool,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Value of `enable_thinking`; `None` leaves the choice to the template.
    pub thinking: Option<bool>,
}

/// A model's chat templates.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    sources: BTreeMap<String, String>,
    files: BTreeMap<String, PathBuf>,
    named_tokens: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(crate) struct TemplateFile {
    pub(crate) path: PathBuf,
    pub(crate) source: String,
}

impl ChatTemplate {
    /// Compiles templates by name. A single template is used for all conversations. Of several
    /// templates, `default` is used, or `tool_use` (if it exists) for conversations with tools.
    /// `named_tokens` sets `bos_token`, `eos_token` etc.
    ///
    /// # Errors
    /// Fails if a template does not compile, if none is given, or if none of several is named
    /// `default`.
    pub fn new(
        sources: BTreeMap<String, String>,
        named_tokens: BTreeMap<String, String>,
    ) -> Result<Self, TextError> {
        Self::compile(sources, BTreeMap::new(), named_tokens)
    }

    pub(crate) fn from_files(
        templates: BTreeMap<String, TemplateFile>,
        named_tokens: BTreeMap<String, String>,
    ) -> Result<Self, TextError> {
        let files = templates.iter().map(|(name, file)| (name.clone(), file.path.clone())).collect();
        let sources = templates.into_iter().map(|(name, file)| (name, file.source)).collect();
        Self::compile(sources, files, named_tokens)
    }

    fn compile(
        sources: BTreeMap<String, String>,
        files: BTreeMap<String, PathBuf>,
        named_tokens: BTreeMap<String, String>,
    ) -> Result<Self, TextError> {
        if sources.is_empty() {
            return Err(TextError::Chat("there is no chat template".into()));
        }
        let mut environment = environment();
        for (name, source) in &sources {
            if source.len() > limits::MOST_SOURCE {
                let reason = format!(
                    "template `{name}` has {} bytes; at most {} are read",
                    source.len(),
                    limits::MOST_SOURCE
                );
                return Err(refusal(files.get(name), reason));
            }
            let rewritten = source::rewritten(source)
                .map_err(|reason| refusal(files.get(name), format!("template `{name}`: {reason}")))?;
            limits::rendering(|| {
                environment
                    .add_template_owned(name.clone(), rewritten)
                    .map_err(|error| broken(name, files.get(name), &error))
            })?;
        }
        if !sources.contains_key("default") && sources.len() != 1 {
            let names: Vec<&str> = sources.keys().map(String::as_str).collect();
            let reason = format!("several chat templates and none named `default`: {}", names.join(", "));
            return Err(refusal(files.values().next(), reason));
        }
        Ok(Self { environment, sources, files, named_tokens }.at(FIXED_TIME))
    }

    /// Compiles a single template.
    ///
    /// # Errors
    /// Fails with the line number if the template does not compile.
    pub fn from_source(source: &str) -> Result<Self, TextError> {
        Self::new([("default".to_owned(), source.to_owned())].into(), BTreeMap::new())
    }

    /// Sets the time used by `strftime_now`, in seconds since 1970 (UTC).
    pub fn at(mut self, seconds: i64) -> Self {
        self.environment.add_function("strftime_now", move |format: &str| {
            let text = clock::strftime(seconds, format)
                .map_err(|reason| minijinja::Error::new(ErrorKind::InvalidOperation, reason))?;
            limits::made(Value::from(text))
        });
        self
    }

    /// Returns the default template's original source.
    pub fn source(&self) -> &str {
        self.sources.get(self.name(false)).map_or("", String::as_str)
    }

    fn name(&self, tools: bool) -> &str {
        let wanted = if tools && self.sources.contains_key("tool_use") { "tool_use" } else { "default" };
        match self.sources.get_key_value(wanted) {
            Some((name, _)) => name,
            None => self.sources.keys().next().map_or("default", String::as_str),
        }
    }

    /// Renders a conversation as text.
    ///
    /// # Errors
    /// Fails with the line number if the template rejects the messages, cannot be rendered, or
    /// exceeds a limit (`limits.rs`).
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TextError> {
        let name = self.name(!options.tools.is_empty());
        let mut variables: BTreeMap<&str, Value> = self
            .named_tokens
            .iter()
            .map(|(name, text)| (name.as_str(), Value::from(text.as_str())))
            .collect();
        let tools: Vec<Value> = options.tools.iter().map(|tool| tool.0.clone()).collect();
        variables.insert("messages", messages.iter().map(|message| message.0.clone()).collect());
        // As in Python, absent values are None, which counts as defined.
        variables.insert("tools", if tools.is_empty() { Value::from(()) } else { Value::from(tools) });
        variables.insert("documents", Value::from(()));
        variables.insert("add_generation_prompt", Value::from(options.add_generation_prompt));
        if let Some(thinking) = options.thinking {
            variables.insert("enable_thinking", Value::from(thinking));
        }
        let fail = |error| broken(name, self.files.get(name), &error);
        limits::rendering(move || {
            let mut output = limits::Output::default();
            let template = self.environment.get_template(name).map_err(fail)?;
            template.render_captured_to(variables, &mut output).map_err(fail)?;
            Ok(output.into_text())
        })
    }
}

fn broken(name: &str, file: Option<&PathBuf>, error: &minijinja::Error) -> TextError {
    let index = error.line().map_or_else(String::new, |line| format!("line {line} of it: "));
    let reason = match error.kind() {
        ErrorKind::OutOfFuel => {
            format!(
                "it takes more than {} steps for one conversation, as a loop without end does",
                limits::FUEL
            )
        }
        ErrorKind::WriteFailure => error.source().map_or_else(|| error.to_string(), ToString::to_string),
        kind => error.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    refusal(file, format!("template `{name}`: {index}{reason}"))
}

fn refusal(file: Option<&PathBuf>, reason: impl Display) -> TextError {
    match file {
        Some(path) => wrong(path, reason),
        None => TextError::Chat(reason.to_string()),
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(checked::method);
    limits::set(&mut environment);
    checked::set(&mut environment);
    environment.set_formatter(|out, _state, value| {
        limits::check_printed(value)?;
        let text = python::text(value);
        limits::count_printed(text.len())?;
        out.write_str(&text).map_err(|_| ErrorKind::WriteFailure.into())
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: Value| {
        limits::check_printed(&value)?;
        limits::made(Value::from(python::text(&value)))
    });
    // Unlike None, texts and undefined values are iterable in Python.
    environment.add_test("iterable", |value: Value| {
        value.as_str().is_some() || value.is_undefined() || (!value.is_none() && value.try_iter().is_ok())
    });
    environment.add_test("sequence", |value: Value| {
        value.as_str().is_some()
            || matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
    });
    environment.add_function("raise_exception", |message: Value| -> Result<Value, minijinja::Error> {
        limits::check_printed(&message)?;
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, python::text(&message)))
    });
    environment
}

/// Maximum JSON indentation, which bounds memory.
const WIDEST_INDENT: usize = 64;

/// Python's `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
#[expect(clippy::needless_pass_by_value, reason = "the shape that filters have")]
fn to_json(
    _state: &State<'_, '_>,
    value: Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, minijinja::Error> {
    limits::check_printed(&value)?;
    let argument = |position: usize, name: &str| -> Option<Value> {
        let given = positional.get(position).cloned().or_else(|| named.get::<Value>(name).ok());
        given.filter(|value| !value.is_none() && !value.is_undefined())
    };
    let separators = match argument(2, "separators") {
        None => None,
        Some(pair) => {
            let text = |index: usize| -> Result<String, minijinja::Error> {
                Ok(python::text(&pair.get_item(&Value::from(index))?))
            };
            Some((text(0)?, text(1)?))
        }
    };
    let indent = match argument(1, "indent") {
        None => None,
        Some(indent) if indent.as_str().is_some() => Some(python::text(&indent)),
        Some(indent) => match usize::try_from(indent)? {
            width @ ..=WIDEST_INDENT => Some(" ".repeat(width)),
            width => {
                let reason = format!("tojson: indent is {width}, and at most {WIDEST_INDENT} is supported");
                return Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason));
            }
        },
    };
    let style = python::JsonStyle {
        ascii: argument(0, "ensure_ascii").is_some_and(|value| value.is_true()),
        indent,
        separators,
        sorted: argument(3, "sort_keys").is_some_and(|value| value.is_true()),
    };
    named.assert_all_used()?;
    limits::made(Value::from(python::json(&value, &style)?))
}

#[cfg(test)]
mod tests;
