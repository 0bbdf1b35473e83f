//! An MCP session with a child process or over streamable HTTP.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ErrorCode, PaginatedRequestParams};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{Peer, RoleClient, ServiceError, ServiceExt as _};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::program::Program;
use super::settings::McpConfig;
use crate::environments::error::ServerError;
use crate::http::{Proxies, build, client_builder, seconds};

const PAGES: usize = 100;
/// Maximum size of all tools as JSON; the policy's prompts contain them.
const TOOL_BYTES: usize = 4 << 20;

const GOODBYE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) enum Transport {
    Stdio,
    Http(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Called {
    pub(super) text: String,
    pub(super) value: Option<Value>,
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct Session {
    client: RunningService<RoleClient, ()>,
    program: Option<Program>,
    pub(super) caller: Caller,
}

#[derive(Clone, Debug)]
pub(super) struct Caller {
    peer: Peer<RoleClient>,
    limit: Duration,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    /// Opens and initializes a session.
    pub(super) async fn open(
        transport: Transport,
        key: Option<String>,
        config: Arc<McpConfig>,
    ) -> Result<Self, ServerError> {
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let mut program = None;
        let greeted = async {
            match &transport {
                Transport::Stdio => {
                    let (process, pipes) = Program::start(&config, &stderr).map_err(|error| {
                        ServerError::setting("command", format!("cannot be started: {error}"))
                    })?;
                    program = Some(process);
                    ().serve(pipes).await.map_err(|_| "it does not speak MCP over its stdin and stdout")
                }
                Transport::Http(url) => {
                    let mut settings = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                        .max_sse_event_size(config.max_message_bytes)
                        .max_json_response_size(config.max_message_bytes)
                        // A new session would lose the state.
                        .reinit_on_expired_session(false);
                    if let Some(key) = key {
                        settings = settings.auth_header(key);
                    }
                    let client = build(client_builder(Proxies::Ignored).pool_max_idle_per_host(0))
                        .map_err(ServerError::from)?;
                    let http = StreamableHttpClientTransport::with_client(client, settings);
                    ().serve(http)
                        .await
                        .map_err(|_| "no MCP over HTTP there; is the server up, and is its path right?")
                }
            }
            .map_err(|reason| ServerError::Lost(reason.to_owned()))
        };
        let limit = seconds(config.start_timeout_s);
        let client = timeout(limit, greeted).await.unwrap_or_else(|_| {
            let seconds = config.start_timeout_s;
            Err(ServerError::Lost(format!(
                "no greeting within {seconds} s; raise env.start_timeout_s if it needs longer"
            )))
        });
        let client = client.map_err(|error| with_stderr(error, &stderr))?;
        let caller = Caller { peer: client.peer().clone(), limit: seconds(config.timeout_s), stderr };
        Ok(Self { client, program, caller })
    }

    pub(super) async fn close(self) {
        let _ = timeout(GOODBYE, self.client.cancel()).await;
        if let Some(program) = self.program {
            program.end().await;
        }
    }
}

impl Caller {
    /// Returns the server's tools as JSON, in MCP's format.
    pub(super) async fn tools(&self) -> Result<Vec<Value>, ServerError> {
        let mut tools = Vec::new();
        let (mut cursor, mut bytes) = (None, 0);
        for _ in 0..PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page =
                timeout(self.limit, self.peer.list_tools(Some(page))).await.map_err(|_| self.late())?;
            let page = page.map_err(|error| self.failed(&error))?;
            for tool in page.tools {
                let text = serde_json::to_string(&tool);
                let text = text.map_err(|error| ServerError::Answer(error.to_string()))?;
                bytes += text.len();
                if bytes > TOOL_BYTES {
                    let reason = format!("its list of tools has more than {TOOL_BYTES} bytes");
                    return Err(ServerError::Answer(reason));
                }
                let tool = serde_json::from_str(&text);
                tools.push(tool.map_err(|error| ServerError::Answer(error.to_string()))?);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(ServerError::Answer(format!("its list of tools has more than {PAGES} pages")))
    }

    /// Calls a tool. If the server rejects the tool's name or arguments, the call counts as a
    /// failure of the tool, not of the server.
    pub(super) async fn call(
        &self,
        name: String,
        arguments: Map<String, Value>,
    ) -> Result<Called, ServerError> {
        let call = self.peer.call_tool(CallToolRequestParams::new(name).with_arguments(arguments));
        match timeout(self.limit, call).await.map_err(|_| self.late())? {
            Ok(result) => Ok(called(result)),
            Err(ServiceError::McpError(error))
                if [ErrorCode::INVALID_PARAMS, ErrorCode::METHOD_NOT_FOUND].contains(&error.code) =>
            {
                Ok(Called { text: error.message.into_owned(), value: None, failed: true })
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn late(&self) -> ServerError {
        let seconds = self.limit.as_secs_f64();
        ServerError::Lost(format!(
            "no answer within {seconds} s; raise env.timeout_s if the tool needs longer"
        ))
    }

    fn failed(&self, error: &ServiceError) -> ServerError {
        match error {
            ServiceError::McpError(error) => {
                ServerError::Answer(format!("it answers with error {}: {}", error.code.0, error.message))
            }
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                with_stderr(ServerError::Lost("the connection to the server broke".into()), &self.stderr)
            }
            _ => ServerError::Answer("its answer has not the form that MCP wants".into()),
        }
    }
}

fn with_stderr(error: ServerError, stderr: &Mutex<Vec<u8>>) -> ServerError {
    let kept = stderr.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = String::from_utf8_lossy(&kept).trim().to_owned();
    match error {
        ServerError::Lost(text) if !kept.is_empty() => {
            ServerError::Lost(format!("{text}; its stderr ends with: {kept}"))
        }
        error => error,
    }
}

fn called(result: CallToolResult) -> Called {
    let part = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(_) => "[image]".to_owned(),
        ContentBlock::Audio(_) => "[audio]".to_owned(),
        _ => "[resource]".to_owned(),
    };
    let mut text = result.content.iter().map(part).collect::<Vec<_>>().join("\n");
    if let (true, Some(value)) = (text.is_empty(), &result.structured_content) {
        text = value.to_string();
    }
    Called { text, value: result.structured_content, failed: result.is_error.unwrap_or(false) }
}
