//! A small model that was trained on two conversations, so that its greedy responses are known.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, Purpose, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::{LearnerConfig, ModelConfig, NativeLearner, Parameters, save_model};
use turnwise_serve::engine::{EngineServer, EngineSettings, ServedModel};
use turnwise_serve::openai::{ChatRequest, prompt_text};
use turnwise_serve::{Limits, Server};
use turnwise_text::chat::ChatTemplate;
use turnwise_text::{Tokenizer, TokenizerConfig};

pub(crate) const TOOL: &str = r#"{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}"#;
pub(crate) const CALL: &str =
    "I ask.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
pub(crate) const COUNT: &str = "one two three four five";

const TEMPLATE: &str = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}\
    {% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
    {% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Maximises the log-prob of every token.
struct Likelihood(f32);

impl Objective for Likelihood {
    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        let sum: f64 = tokens.logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
        Ok(TokenGradients {
            loss: -sum * f64::from(self.0),
            d_logprobs: vec![-self.0; tokens.logprobs.len()],
            ..TokenGradients::default()
        })
    }
}

/// Returns the body of the request that is answered with [`CALL`] or [`COUNT`].
pub(crate) fn request(call: bool, more: &str) -> String {
    let (words, tools) =
        if call { ("How is Oslo?", format!(r#", "tools": [{TOOL}]"#)) } else { ("Count.", String::new()) };
    format!(
        r#"{{"model": "learned", "messages": [{{"role": "user", "content": "{words}"}}], "temperature": 0{tools}{more}}}"#
    )
}

/// Writes the model `learned`, and `endless`, which has its weights but neither a chat template nor
/// an end token.
pub(crate) fn write(folder: &Path) {
    let config = TokenizerConfig {
        special_tokens: ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec(),
        phrases: [" three", "\"arguments\": ", "</tool_call>"].map(String::from).to_vec(),
        max_pieces: 40,
        ..TokenizerConfig::default()
    };
    let bare = Tokenizer::train([CALL, COUNT, TOOL].into_iter(), &config).unwrap();
    let end = bare.token_id("<|im_end|>").unwrap();
    let tokenizer = bare.clone().with_chat(ChatTemplate::from_source(TEMPLATE).unwrap(), vec![end]);
    let template = tokenizer.chat_template().unwrap();
    let sequences: Vec<TokenSequence> = [(true, CALL), (false, COUNT)]
        .map(|(call, response)| {
            let request = ChatRequest::read(request(call, "").as_bytes()).unwrap();
            let prompt = tokenizer.encode(&prompt_text(template, &request).unwrap());
            let tokens = [&prompt[..], &tokenizer.encode(response), &[end]].concat();
            let spans = vec![TurnSpan { turn: 0, start: prompt.len(), end: tokens.len() }];
            TokenSequence { tokens, spans }
        })
        .to_vec();
    let shape = ModelConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 4096,
        ..ModelConfig::default()
    };
    let parameters = Parameters::init(shape, Seed::derive(0, Purpose::Init, &[])).unwrap();
    let mut learner = NativeLearner::new(parameters, LearnerConfig::default()).unwrap();
    let count: usize = sequences.iter().map(|sequence| sequence.spans[0].end - sequence.spans[0].start).sum();
    let objective = Likelihood(1.0 / count as f32);
    let mut loss = f64::INFINITY;
    for _ in 0..400 {
        loss = learner.forward_backward(&TokenBatch::of(&sequences), &objective).unwrap().loss;
        learner.step(3e-3).unwrap();
        if loss < 0.002 {
            break;
        }
    }
    assert!(loss < 0.01, "the model has not learned: {loss}");
    let parameters = learner.weights().merged().unwrap();
    for (name, tokenizer) in [("learned", tokenizer), ("endless", bare)] {
        save_model(&parameters, &folder.join(name)).unwrap();
        tokenizer.save_folder(&folder.join(name)).unwrap();
    }
}

/// A server of the model; the folder exists as long as it is used.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) engine: Arc<EngineServer>,
    _folder: tempfile::TempDir,
}

/// Starts a server of both models and a copy of the first.
pub(crate) fn serve(settings: EngineSettings) -> Served {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let model = |name: &str, at: &str| ServedModel { name: name.to_owned(), path: folder.path().join(at) };
    let models = vec![
        model("learned", "learned"),
        model("endless", "endless"),
        model("copy", "learned"),
        model("gone", "nowhere"),
    ];
    let engine = Arc::new(EngineServer::open(models, settings).unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(address, Arc::clone(&engine), Limits::default()).unwrap();
    Served { server, engine, _folder: folder }
}
