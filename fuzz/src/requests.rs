//! Fuzz targets for request bodies of the server. A test of the crate `agent` replays their seeds.

use turnwise_agent::rewards::Report;
use turnwise_serve::openai::{ChatRequest, TextRequest, template_messages, template_tools};

use super::seeds::Target;

/// Every target of this file.
pub const TARGETS: &[Target] = &[("openai_request", openai_request)];

/// Parses a chat completion, a text completion and an agent's report of rewards.
pub fn openai_request(data: &[u8]) {
    if let Ok(request) = ChatRequest::read(data) {
        let _ = template_messages(&request.messages);
        let _ = template_tools(&request);
    }
    let _ = TextRequest::read(data);
    let _ = Report::from_json(data);
}
