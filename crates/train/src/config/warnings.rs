//! Warnings about valid settings that are unlikely to train as intended.

use super::{Config, Layout, Registries};

const FOREIGN_MASKED_PROMPTS: &str = "warning: the loss compares responses with their masked prompts, and prompt.layout is \"concatenated\": \
     a masked prompt has the windowed form, which such a policy has never seen, so that the comparison measures how foreign \
     the prompt is and not what a response owes to goal and history; set prompt.layout = \"windowed\" and prompt.history for \
     the warm start and the training";

impl Config {
    /// Returns warnings about valid but misleading combinations.
    pub fn warnings(&self, registries: &Registries) -> Vec<String> {
        let masked = registries.loss(self).is_ok_and(|loss| loss.passes().masked_context.is_some());
        // An agent's masked prompts are messages in both layouts.
        let foreign = self.train.steps > 0
            && masked
            && !self.has_conversations(&registries.environments)
            && self.prompt.layout == Layout::Concatenated;
        let foreign = foreign.then(|| FOREIGN_MASKED_PROMPTS.to_owned());
        foreign.into_iter().chain(self.low_rate()).chain(self.long_warmup()).collect()
    }

    fn low_rate(&self) -> Option<String> {
        let (what, usual, often) = match (&self.policy.lora, &self.policy.model) {
            // HAS trains adapters with 5e-6.
            (Some(_), _) => ("an adapter", 5e-6, 5e-5),
            (None, None) => ("a model from scratch", 1e-4, 1e-3),
            (None, Some(_)) => return None,
        };
        let rate = self.train.learning_rate;
        (self.train.steps > 0 && rate > 0.0 && rate < usual).then(|| {
            format!(
                "warning: train.learning_rate is {rate:e}, a rate for all weights of a large model; {what} hardly learns with less \
                 than {usual:e}; set train.learning_rate (often {often:e})"
            )
        })
    }

    fn long_warmup(&self) -> Option<String> {
        let (warmup, steps) = (self.sft.warmup, self.sft.steps);
        (steps > 0 && 2 * warmup > steps).then(|| {
            format!(
                "warning: sft.warmup is {warmup} of sft.steps = {steps}, so that most of the warm start has a fraction of \
                 sft.learning_rate; set sft.warmup = {}",
                steps / 10
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{ConfigSource, Registries, load};

    fn warnings(overrides: &[&str]) -> Vec<String> {
        let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
        let config = load(&ConfigSource { overrides, ..ConfigSource::default() }).unwrap();
        config.warnings(&Registries::builtin())
    }

    #[test]
    fn rates_and_warmups_that_teach_little_are_warned_of() {
        let short = ["sft.warmup=5", "sft.steps=60"];
        let low = warnings(&[&short[..], &["train.learning_rate=1e-6"]].concat());
        assert!(low.len() == 1 && low[0].contains("train.learning_rate is 1e-6"), "{low:?}");
        assert!(low[0].contains("a model from scratch"), "{low:?}");
        assert!(warnings(&[&short[..], &["train.learning_rate=1e-3"]].concat()).is_empty());
        let adapter = ["policy.model=org/model", "policy.lora.rank=8", "sft.steps=0"];
        let low = warnings(&[&adapter[..], &["train.learning_rate=1e-6"]].concat());
        assert!(low.len() == 1 && low[0].contains("an adapter hardly learns"), "{low:?}");
        assert!(warnings(&[&adapter[..], &["train.learning_rate=1e-5"]].concat()).is_empty());
        assert!(warnings(&["policy.model=org/model", "sft.steps=0", "train.learning_rate=1e-6"]).is_empty());
        let long = warnings(&["train.learning_rate=1e-3", "sft.warmup=50", "sft.steps=60"]);
        assert!(long.len() == 1 && long[0].contains("sft.warmup is 50 of sft.steps = 60"), "{long:?}");
        assert!(long[0].contains("set sft.warmup = 6"), "{long:?}");
    }
}
