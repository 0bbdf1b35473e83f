//! Bodies of requests to the server, given to its parsers. A test of the crate `agent` replays the seeds.

use turnwise_agent::rewards::Report;
use turnwise_serve::openai::{ChatRequest, TextRequest, template_messages, template_tools};

/// A parser and the name of its target.
pub type Target = (&'static str, fn(&[u8]));

/// Every target of this file, as in `parsers.rs`.
pub const TARGETS: &[Target] = &[("openai_request", openai_request)];

/// A chat completion, a text completion and an agent's report of rewards.
pub fn openai_request(data: &[u8]) {
    if let Ok(request) = ChatRequest::read(data) {
        let _ = template_messages(&request.messages);
        let _ = template_tools(&request);
    }
    let _ = TextRequest::read(data);
    let _ = Report::from_json(data);
}
