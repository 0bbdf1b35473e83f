//! The text of single tokens.

use std::path::Path;

use turnwise_policy::{base, run_folder};
use turnwise_text::{DecodeStream, Tokenizer};

/// Tokens as texts.
pub(super) struct TokenTexts(Tokenizer);

impl TokenTexts {
    /// Returns the tokenizer of a run's newest checkpoint, or of the model under its adapter. A run
    /// without one is shown without texts of tokens.
    pub(super) fn of_run(run: &Path) -> Option<Self> {
        let policy = run_folder::whole_checkpoints(run).ok()?.pop()?.join("policy");
        let folder =
            if policy.join("tokenizer.json").is_file() { policy } else { base::find(&policy, None).ok()? };
        Tokenizer::load_folder(&folder).ok().map(Self)
    }

    /// Returns the text that each token adds. A character split over several tokens belongs to the
    /// last.
    pub(super) fn texts(&self, ids: &[u32]) -> Vec<String> {
        let mut stream = DecodeStream::new();
        let mut texts: Vec<String> = ids.iter().map(|&id| stream.push(&self.0, id)).collect();
        let rest = stream.finish();
        if let Some(last) = texts.last_mut() {
            last.push_str(&rest);
        }
        texts
    }
}
