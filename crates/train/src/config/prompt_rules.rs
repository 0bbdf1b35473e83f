//! Rules of the `[prompt]` table.

use std::path::Path;

use turnwise_settings::suggest;

use super::rules::Rules;
use super::{AutoOnOff, Config, Layout, PromptConfig};

impl Rules<'_> {
    pub(super) fn prompt(&mut self) {
        let Config { env, prompt, .. } = self.config;
        let name = prompt.template.as_str();
        let worlds = &self.registries.environments;
        if let Ok(world) = worlds.kind(&env.kind)
            && !Path::new(name).is_file()
        {
            let foreign = |name: &str| {
                let others = worlds.kinds().filter(|kind| kind.name() != world.name());
                others.flat_map(|kind| kind.templates().iter()).any(|(known, _)| *known == name)
            };
            let own: Vec<&str> =
                worlds.templates().map(|(known, _)| known).filter(|known| !foreign(known)).collect();
            if foreign(name) {
                let reason = format!(
                    "is {name:?}, a template of another world; use one of {}, or a file",
                    own.join(", ")
                );
                self.fail("prompt.template", reason);
            } else if !own.contains(&name) {
                let meant =
                    suggest(name, &own).map(|name| format!(" Did you mean {name:?}?")).unwrap_or_default();
                let reason = format!(
                    "is {name:?}, which is neither a file nor a template; templates: {}.{meant}",
                    own.join(", ")
                );
                self.fail("prompt.template", reason);
            }
        }
        self.compaction();
        if prompt.chat == AutoOnOff::Off {
            for (key, set) in
                [("system", prompt.system.is_some()), ("thinking", prompt.thinking != AutoOnOff::Auto)]
            {
                if set {
                    self.fail(&format!("prompt.{key}"), "is set, and prompt.chat = \"off\" leaves no chat template that could use it; remove one of the two");
                }
            }
        }
    }

    /// Checks the compaction settings: prompts must grow with the episode, summaries must fit the
    /// context, and the environment must not play agents, which write their own prompts.
    fn compaction(&mut self) {
        let Config { env, prompt, rollout, .. } = self.config;
        let Some(after) = prompt.compact_after else {
            if prompt.max_summary_tokens != PromptConfig::default().max_summary_tokens {
                self.fail(
                    "prompt.max_summary_tokens",
                    "is set, and no summaries are written; set prompt.compact_after, or leave it out",
                );
            }
            return;
        };
        let (summary, context) = (prompt.max_summary_tokens, rollout.max_model_len);
        if self.config.has_conversations(&self.registries.environments) {
            self.fail(
                "prompt.compact_after",
                format!(
                    "is set, and env.kind = \"{}\" plays agents, which write their own prompts; leave it out, and let the agent \
                     replace its history by a summary: its request for one is a turn",
                    env.kind
                ),
            );
        }
        if prompt.layout == Layout::Windowed {
            self.fail(
                "prompt.compact_after",
                "is set, and with prompt.layout = \"windowed\" prompts do not grow: they have the latest prompt.history turns; set \
                 prompt.layout = \"concatenated\", or leave it out",
            );
        } else if after + summary >= context {
            self.fail(
                "prompt.compact_after",
                format!(
                    "is {after}, which with prompt.max_summary_tokens = {summary} leaves no room in rollout.max_model_len = \
                     {context} for the request of a summary; lower it, or raise rollout.max_model_len above {} and the request",
                    after + summary
                ),
            );
        }
    }
}
