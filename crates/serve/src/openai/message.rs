//! Conversation messages.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use turnwise_model::vision::Image;

use super::ApiError;
use super::fields::Fields;
use super::picture::{self, PICTURE};

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCall {
    /// Id to which a tool result refers.
    pub id: String,
    /// `function`.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// Name and arguments.
    pub function: CallFunction,
}

/// A call's function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFunction {
    /// Tool name.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
}

fn function() -> String {
    "function".to_owned()
}

impl MessageCall {
    /// Creates a call; `arguments` is JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let function = CallFunction { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), kind: "function".to_owned(), function }
    }
}

/// A request's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text parts joined by line breaks, with placeholders for images.
    pub content: Option<String>,
    /// Images in placeholder order.
    pub images: Vec<Image>,
    /// Speaker or tool name.
    pub name: Option<String>,
    /// Reasoning before an assistant's text (`reasoning_content`, an extension).
    pub reasoning: Option<String>,
    /// An assistant's tool calls.
    pub tool_calls: Vec<MessageCall>,
    /// Call that a `tool` message answers.
    pub tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// Content parts, parsed one by one so that errors name the invalid part.
    Parts(Vec<Value>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

/// An image's URL. `detail`, which selects among several image resolutions, is ignored.
#[derive(Deserialize)]
struct ImageUrl {
    url: String,
}

impl ChatMessage {
    /// Creates a text message.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: Some(content.into()), ..Self::default() }
    }

    /// Parses the message with index `index`. `pixels` is what remains of the request's pixel
    /// budget.
    pub(super) fn read(index: usize, raw: &RawValue, pixels: &mut u64) -> Result<Self, ApiError> {
        let mut fields = Fields::of_part(format!("messages[{index}]"), raw)?;
        let role: String = fields.need("role")?;
        if !ROLES.contains(&role.as_str()) {
            let place = fields.place("role");
            let message = format!("`{place}` = \"{role}\": give one of {}", ROLES.join(", "));
            return Err(ApiError::field(place, message));
        }
        let mut images = Vec::new();
        let content = match fields.take::<Content>("content")? {
            None => None,
            Some(Content::Text(text)) => Some(text),
            Some(Content::Parts(parts)) => {
                Some(joined(&fields.place("content"), parts, &mut images, pixels)?)
            }
        };
        let name = fields.take("name")?;
        let mut reasoning = None;
        for key in ["reasoning_content", "reasoning", "thinking"] {
            reasoning = reasoning.or(fields.take::<String>(key)?);
        }
        let tool_calls: Vec<MessageCall> = fields.take("tool_calls")?.unwrap_or_default();
        let tool_call_id = fields.take("tool_call_id")?;
        if !tool_calls.is_empty() && role != "assistant" {
            let place = fields.place("tool_calls");
            return Err(ApiError::field(place, "only messages of the role assistant make calls"));
        }
        if role == "tool" && tool_call_id.is_none() {
            let place = fields.place("tool_call_id");
            let message = format!("`{place}` is missing: which call does this result belong to?");
            return Err(ApiError::field(place, message));
        }
        if content.is_none() && tool_calls.is_empty() {
            let place = fields.place("content");
            let message = format!("`{place}` is missing");
            return Err(ApiError::field(place, message));
        }
        // Clients send back these empty response fields.
        for key in ["annotations", "audio", "function_call", "refusal"] {
            fields.drop_if_neutral(key, &[json!([]), json!("")])?;
        }
        fields.finish()?;
        Ok(Self { role, content, images, name, reasoning, tool_calls, tool_call_id })
    }
}

fn joined(
    place: &str,
    parts: Vec<Value>,
    images: &mut Vec<Image>,
    pixels: &mut u64,
) -> Result<String, ApiError> {
    let mut joined = String::new();
    let mut after_text = false;
    for (index, part) in parts.into_iter().enumerate() {
        let part: Part = serde_json::from_value(part).map_err(|error| {
            let place = format!("{place}[{index}]");
            let message = format!("`{place}`: {error}");
            ApiError::field(place, message)
        })?;
        match (part.kind.as_str(), part.text, part.image_url) {
            ("text", Some(text), _) => {
                if after_text {
                    joined.push('\n');
                }
                joined.push_str(&text);
                after_text = true;
            }
            ("image_url", _, Some(image)) => {
                images.push(picture::read(&format!("{place}[{index}].image_url.url"), &image.url, pixels)?);
                joined.push_str(PICTURE);
                after_text = false;
            }
            (kind, ..) => {
                let place = format!("{place}[{index}]");
                let message =
                    format!("`{place}`: parts of type {kind:?} are not supported; send text or image_url");
                return Err(ApiError::unsupported(place, message));
            }
        }
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";

    fn read(content: &str) -> Result<ChatMessage, ApiError> {
        let raw = RawValue::from_string(format!(r#"{{"role":"user","content":{content}}}"#)).unwrap();
        ChatMessage::read(3, &raw, &mut 3)
    }

    #[test]
    fn pictures_have_their_place_in_the_text() {
        let image =
            format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{PIXEL}"}}}}"#);
        let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        let parts = [text("a"), text("b"), image.clone(), text("c"), image];
        let found = read(&format!("[{}]", parts.join(","))).unwrap();
        assert_eq!(found.content.unwrap(), format!("a\nb{PICTURE}c{PICTURE}"));
        assert_eq!(found.images.len(), 2);
        let two = format!("[{0},{0},{0},{0}]", parts[2]);
        assert!(format!("{:?}", read(&two).unwrap_err()).contains("content[3]"));
        // The content decides, not the URL.
        let claimed = parts[2].replace("image/png", "image/jpeg");
        assert_eq!(read(&format!("[{claimed}]")).unwrap().images, found.images[..1]);
        assert_eq!((found.images[0].width, found.images[0].height, found.images[0].rgb.len()), (1, 1, 3));
    }

    #[test]
    fn other_pictures_are_refused_by_their_place() {
        use base64::Engine as _;
        let url = |kind: &str, bytes: &[u8]| {
            let data = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!("data:{kind};base64,{data}")
        };
        let mut bomb = base64::engine::general_purpose::STANDARD.decode(PIXEL).unwrap();
        bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        for (url, reason) in [
            ("https://example.org/x.png".to_owned(), "nothing is fetched"),
            ("http://127.0.0.1/x.png".to_owned(), "nothing is fetched"),
            ("file:///etc/passwd".to_owned(), "nothing is fetched"),
            (url("image/gif", b"GIF89a"), "only PNG and JPEG"),
            (url("text/html", b"<html>"), "only PNG and JPEG"),
            ("data:image/png;base64,!!".to_owned(), "base64 of the picture is damaged"),
            ("data:image/png,plain".to_owned(), "in base64"),
            ("data:image/png;base64,".to_owned(), "the picture is empty"),
            (url("image/png", b"GIF89a"), "a GIF file; PNG and JPEG are read"),
            (url("image/png", b"\xff\xd8\xff\xe0"), "the JPEG file cannot be decoded"),
            (url("image/jpeg", &bomb), "the PNG file cannot be decoded"),
            (format!("data:image/png;base64,{}", &PIXEL[..60]), "cannot be decoded"),
        ] {
            let part = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
            let error = format!("{:?}", read(&part).unwrap_err());
            assert!(
                error.contains(reason) && error.contains("messages[3].content[0].image_url.url"),
                "{error}"
            );
        }
        assert!(format!("{:?}", read(r#"[{"type":"input_audio"}]"#).unwrap_err()).contains("input_audio"));
    }
}
