use std::io::{BufRead, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use rustyline::Editor;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use turnwise_core::{Purpose, SampleRequest, Sampler, SamplingParams, Seed};
use turnwise_model::engine::{EngineConfig, NativeEngine, SharedWeights};
use turnwise_model::vision::{Image, PictureTokens, VisionConfig, VisionTokens};
use turnwise_model::{Compute, Device};
use turnwise_policy::Policy;
use turnwise_text::chat::{ChatFormat, ChatSettings};
use turnwise_text::{DecodeStream, Tokenizer};

use crate::console;
use crate::ui;

/// Maximum number of tokens in a conversation, unless the model's limit is lower.
const CONTEXT: usize = 8_192;

const HELP: &str = "\
  /image FILE  shows a PNG picture with the next message
  /reset       forgets the conversation
  /quit        leaves (as does the end of the input)
  /help        this text
  Ctrl-C       stops a reply";

/// Talk to a model.
///
/// A model with a chat template replies to messages. A model without a chat template (e.g. trained
/// from scratch) continues the typed text, in which `\n` means a line break.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// A model folder, a run directory (newest checkpoint) or a checkpoint.
    model: PathBuf,
    /// System message [default: the chat template's, if any].
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// PNG or JPEG image for the first message, if the model supports images (Qwen2.5-VL);
    /// repeatable.
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// Top-p (nucleus) sampling: keep the most likely tokens whose probabilities sum to this value.
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Maximum number of tokens per reply.
    #[arg(long, default_value_t = 512)]
    max_tokens: usize,
    /// Turn reasoning on or off, if the chat template has such a switch (Qwen3).
    #[arg(long, value_enum)]
    thinking: Option<Thinking>,
    /// Continue the typed text instead of applying the chat template.
    #[arg(long, conflicts_with_all = ["system", "thinking"])]
    plain: bool,
    /// Seed for sampling.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Device to run the model on.
    #[arg(long, value_enum, default_value_t)]
    device: DeviceName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceName {
    #[default]
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Thinking {
    On,
    Off,
}

pub(crate) fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    if args.max_tokens == 0 {
        bail!("--max-tokens 0: a reply needs at least one token");
    }
    let policy = Policy::load(&args.model)?;
    let tokenizer = &policy.tokenizer;
    let format = if args.plain || tokenizer.chat_template().is_none() {
        if args.system.is_some() || args.thinking.is_some() {
            bail!("{}: has no chat template, so --system and --thinking mean nothing", args.model.display());
        }
        None
    } else {
        let thinking = args.thinking.map(|thinking| thinking == Thinking::On);
        let format = ChatFormat::new(tokenizer, ChatSettings { system: args.system, thinking })?;
        format.check_growth().context("--plain continues plain text instead")?;
        if thinking.is_some() && !format.knows_thinking()? {
            bail!("--thinking: this model's chat template has no such switch; leave the option out");
        }
        Some(format)
    };
    let context = CONTEXT.min(policy.weights.config().max_position_embeddings);
    let device = if args.device == DeviceName::Cuda { Device::Cuda } else { Device::Cpu };
    let weights = SharedWeights::of(&policy.weights, 0, device, Compute::F32)?;
    let sizes = EngineConfig { max_num_seqs: 1, max_model_len: context };
    let mut sampler = NativeEngine::with_shared(&weights, sizes, Some(Arc::clone(tokenizer)))?;
    let params = SamplingParams {
        temperature: args.temperature,
        top_p: args.top_p,
        max_tokens: 1,
        stop_tokens: format.as_ref().map_or(tokenizer.end_tokens(), ChatFormat::stop_tokens).to_vec(),
        ..SamplingParams::default()
    };
    let mut conversation = Conversation {
        sampler: &mut sampler,
        tokenizer,
        format,
        params,
        longest: args.max_tokens,
        context,
        seed: args.seed,
        stop: ui::interruptions()?,
        tokens: Vec::new(),
        vision: policy.weights.config().vision.clone(),
        pictures: Vec::new(),
        replies: 0,
    };
    for path in &args.image {
        conversation.show(path).with_context(|| format!("--image {}", path.display()))?;
    }
    if std::io::stdin().is_terminal() && console::stdout_is_terminal() {
        let editor = Editor::with_history(rustyline::Config::default(), MemHistory::new());
        let mut editor: Editor<(), MemHistory> = editor.context("cannot read from the terminal")?;
        ui::print("/help lists the commands");
        talk(&mut conversation, &mut console::stdout(), || {
            loop {
                match editor.readline("> ") {
                    Ok(line) => {
                        let _ = editor.add_history_entry(line.as_str());
                        return Ok(Some(line));
                    }
                    Err(ReadlineError::Interrupted) => ui::print("/quit leaves"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(error).context("cannot read from the terminal"),
                }
            }
        })?;
    } else {
        let mut lines = std::io::stdin().lock().lines();
        talk(&mut conversation, &mut console::stdout(), || {
            lines.next().transpose().context("cannot read standard input")
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn talk<S: Sampler>(
    conversation: &mut Conversation<'_, S>,
    out: &mut impl Write,
    mut read: impl FnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    while let Some(line) = read()? {
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            "/reset" => conversation.reset(),
            "/help" => writeln!(out, "{HELP}")?,
            other if other.starts_with("/image ") => {
                let path = Path::new(other["/image ".len()..].trim());
                if let Err(error) = conversation.show(path) {
                    writeln!(out, "{error}")?;
                }
            }
            other if other.starts_with('/') => writeln!(out, "no such command; /help lists them")?,
            _ => conversation.answer(&line, out)?,
        }
        out.flush()?;
    }
    Ok(())
}

struct Conversation<'a, S> {
    sampler: &'a mut S,
    tokenizer: &'a Tokenizer,
    format: Option<ChatFormat>,
    /// Requests one token at a time, so that each token is shown immediately.
    params: SamplingParams,
    longest: usize,
    context: usize,
    seed: u64,
    stop: &'a AtomicBool,
    tokens: Vec<u32>,
    vision: Option<VisionConfig>,
    pictures: Vec<PictureTokens>,
    replies: u64,
}

impl<S: Sampler> Conversation<'_, S> {
    fn reset(&mut self) {
        self.tokens.clear();
        self.pictures.clear();
        self.sampler.end_session(0);
    }

    fn show(&mut self, path: &Path) -> anyhow::Result<()> {
        let Some(vision) = &self.vision else {
            bail!("this model reads no pictures; load one with a vision tower (Qwen2.5-VL or Qwen2-VL)");
        };
        self.pictures.push(vision.pictures.add(&Image::read(path)?, vision)?);
        Ok(())
    }

    fn message(&mut self, line: &str) -> anyhow::Result<Vec<u32>> {
        let Some(vision) = self.vision.as_ref().filter(|_| !self.pictures.is_empty()) else {
            return self.prompt(line);
        };
        let VisionTokens { start, image, end, .. } = vision.tokens;
        let mark = self.tokenizer.decode(&[start, image, end]);
        let text = format!("{}{line}", mark.repeat(self.pictures.len()));
        let tokens = vision.insert(&self.prompt(&text)?, &self.pictures)?;
        self.pictures.clear();
        Ok(tokens)
    }

    fn prompt(&self, line: &str) -> anyhow::Result<Vec<u32>> {
        Ok(match &self.format {
            Some(format) if self.tokens.is_empty() => format.first(self.tokenizer, &[], line)?,
            Some(format) => format.next(self.tokenizer, line, self.tokens.last().copied())?,
            None => {
                let text = self.tokenizer.encode(&line.replace("\\n", "\n"));
                let prefix = if self.tokens.is_empty() { self.tokenizer.text_prefix() } else { &[] };
                [prefix, &text].concat()
            }
        })
    }

    fn answer(&mut self, line: &str, out: &mut impl Write) -> anyhow::Result<()> {
        let prompt = match self.message(line) {
            Ok(prompt) => prompt,
            // The text spells out the image token; the pictures wait for the next line.
            Err(error) if !self.pictures.is_empty() => return Ok(writeln!(out, "{error}")?),
            Err(error) => return Err(error),
        };
        if self.tokens.len() + prompt.len() >= self.context {
            writeln!(out, "that would not fit the context of {} tokens; /reset starts over", self.context)?;
            return Ok(());
        }
        self.tokens.extend(prompt);
        self.stop.store(false, Ordering::Relaxed);
        if let Some(format) = &self.format {
            write!(out, "{}", format.opening())?;
        }
        let mut stream = DecodeStream::new();
        for index in 0..self.longest {
            if self.stop.load(Ordering::Relaxed) || self.tokens.len() >= self.context {
                break;
            }
            let token = self.token(index as u64)?;
            self.tokens.push(token);
            if self.params.stop_tokens.contains(&token) {
                break;
            }
            write!(out, "{}", stream.push(self.tokenizer, token))?;
            out.flush()?;
        }
        writeln!(out, "{}", stream.finish())?;
        if self.tokens.len() >= self.context {
            writeln!(out, "the context of {} tokens is full; /reset starts over", self.context)?;
        }
        self.replies += 1;
        Ok(())
    }

    fn token(&mut self, index: u64) -> anyhow::Result<u32> {
        self.sampler.submit(SampleRequest {
            session: 0,
            prompt: self.tokens.clone(),
            params: self.params.clone(),
            seed: Seed::derive(self.seed, Purpose::Evaluation, &[self.replies, index]),
        })?;
        let completions = self.sampler.poll()?;
        let token = completions.first().and_then(|completion| completion.tokens.first());
        token.copied().context("the sampler returned no token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::{Completion, FinishReason, RequestId, SampleError};
    use turnwise_text::TokenizerConfig;
    use turnwise_text::chat::ChatTemplate;

    struct Parrot {
        reply: Vec<u32>,
        next: usize,
        asked: Vec<Vec<u32>>,
    }

    impl Sampler for Parrot {
        fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
            self.asked.push(request.prompt);
            Ok(0)
        }

        fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
            let token = self.reply[self.next % self.reply.len()];
            self.next += 1;
            Ok(vec![Completion {
                request: 0,
                tokens: vec![token],
                logprobs: vec![0.0],
                entropies: vec![0.0],
                finish: FinishReason::Length,
                weights_version: 0,
            }])
        }

        fn end_session(&mut self, _session: u64) {}

        fn weights_version(&self) -> u64 {
            0
        }
    }

    const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                          {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    fn tokenizer() -> Tokenizer {
        let config = TokenizerConfig {
            special_tokens: ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec(),
            ..TokenizerConfig::default()
        };
        let tokenizer = Tokenizer::train(["a"].into_iter(), &config).unwrap();
        let end = tokenizer.token_id("<|im_end|>").unwrap();
        tokenizer.with_chat(ChatTemplate::from_source(CHATML).unwrap(), vec![end])
    }

    fn typed(lines: &[&str], reply: &str, chat: bool, context: usize, longest: usize) -> (String, String) {
        let tokenizer = tokenizer();
        let mut parrot = Parrot { reply: tokenizer.encode(reply), next: 0, asked: Vec::new() };
        let format = chat.then(|| ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap());
        let stop_tokens = if chat { tokenizer.end_tokens().to_vec() } else { Vec::new() };
        let stop = AtomicBool::new(false);
        let mut conversation = Conversation {
            sampler: &mut parrot,
            tokenizer: &tokenizer,
            format,
            params: SamplingParams { max_tokens: 1, stop_tokens, ..SamplingParams::default() },
            longest,
            context,
            seed: 0,
            stop: &stop,
            tokens: Vec::new(),
            vision: None,
            pictures: Vec::new(),
            replies: 0,
        };
        let mut out = Vec::new();
        let mut lines = lines.iter().map(|line| (*line).to_owned());
        talk(&mut conversation, &mut out, || Ok(lines.next())).unwrap();
        let asked = parrot.asked.last().map(|ids| tokenizer.decode(ids)).unwrap_or_default();
        (String::from_utf8(out).unwrap(), asked)
    }

    #[test]
    fn turns_are_one_conversation() {
        let (printed, asked) = typed(&["hi", "", "again", "/quit", "never"], "é!<|im_end|>", true, 500, 9);
        assert_eq!(printed, "é!\né!\n");
        let user = |text: &str| format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        assert_eq!(asked, format!("{}é!<|im_end|>\n{}é!", user("hi"), user("again")));
        let (_, asked) = typed(&["hi", "/reset", "again"], "é!<|im_end|>", true, 500, 9);
        assert_eq!(asked, format!("{}é!", user("again")));
        let (printed, asked) = typed(&["hi", "again"], "abc", true, 500, 2);
        assert_eq!(printed, "ab\nca\n");
        assert_eq!(asked, format!("{}ab<|im_end|>\n{}c", user("hi"), user("again")));
    }

    #[test]
    fn without_a_template_what_is_typed_goes_on() {
        let (printed, asked) = typed(&["x\\n>", "y"], "ab", false, 500, 3);
        assert_eq!(printed, "aba\nbab\n");
        assert_eq!(asked, "x\n>abayba");
    }

    #[test]
    fn a_full_context_is_said() {
        let (printed, _) = typed(&["x", "y"], "ab", false, 3, 9);
        assert!(printed.starts_with("ab\nthe context of 3 tokens is full"), "{printed}");
        assert!(
            printed.ends_with("that would not fit the context of 3 tokens; /reset starts over\n"),
            "{printed}"
        );
        let (printed, _) = typed(&["/nonsense", "/help", "/image x.png"], "a", false, 3, 9);
        assert!(printed.contains("no such command") && printed.contains("/reset"), "{printed}");
        assert!(printed.contains("this model reads no pictures"), "{printed}");
    }
}
