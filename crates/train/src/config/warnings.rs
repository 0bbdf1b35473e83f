//! Warnings about settings that run, and whose numbers do not mean what their method says.

use turnwise_objective::Loss;

use super::{Config, Layout};

/// The warning about masked prompts of a concatenated policy.
const FOREIGN_MASKED_PROMPTS: &str = "warning: the loss compares responses with their masked prompts, and prompt.layout is \"concatenated\": \
     a masked prompt has the windowed form, which such a policy has never seen, so that the comparison measures how foreign \
     the prompt is and not what a response owes to goal and history; set prompt.layout = \"windowed\" and prompt.history for \
     the warm start and the training";

impl Config {
    /// Returns what a person should know of settings that run: combinations whose numbers do not mean what their method says.
    pub fn warnings(&self) -> Vec<String> {
        let masked = Loss::new(&self.objective, &self.methods.objective)
            .is_ok_and(|loss| loss.passes().masked_context.is_some());
        let foreign = self.train.steps > 0 && masked && self.prompt.layout == Layout::Concatenated;
        foreign.then(|| FOREIGN_MASKED_PROMPTS.to_owned()).into_iter().collect()
    }
}
