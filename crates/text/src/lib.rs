//! Tokenizers, chat templates and multi-turn conversations.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! * [`Tokenizer`]: byte-level BPE from a hub model's folder, or trained on an environment's text
//! * [`DecodeStream`]: incremental decoding
//! * [`StopStringMatcher`]: stop strings across tokens, ignored inside reasoning
//! * [`WordPiece`]: the tokenizer of BERT and similar encoders
//! * [`chat`]: Jinja chat templates, and conversations as growing token sequences
//!
//! ```
//! use turnwise_text::{Tokenizer, TokenizerConfig};
//!
//! let texts = ["go to desk 1", "take mug 2 from desk 1"];
//! let config = TokenizerConfig { max_pieces: 20, ..TokenizerConfig::default() };
//! let tokenizer = Tokenizer::train(texts.into_iter(), &config)?;
//! let ids = tokenizer.encode("take mug 2 from desk 1");
//! // A name with its number is one token.
//! assert_eq!(ids.len(), 4);
//! assert_eq!(tokenizer.decode(&ids), "take mug 2 from desk 1");
//! # Ok::<(), turnwise_text::TextError>(())
//! ```

#[doc(hidden)]
pub mod chat;
mod error;
mod parts;
mod stop;
mod tokenizer;
mod whole;
mod wordpiece;

pub use error::TextError;
pub use stop::{ReasoningTags, StopStringMatcher, stop_length};
pub use tokenizer::{DecodeStream, GenerationSampling, Tokenizer, TokenizerConfig};
pub use wordpiece::WordPiece;
