//! Rules of pictures in prompts and of a vision tower from scratch.

use turnwise_model::Device;

use super::rules::Rules;
use super::{Config, Layout, PolicyLearnerConfig, ServerKind, ServerRoute};

const DRAWN: &str = "pictures";

impl Rules<'_> {
    pub(super) fn pictures(&mut self) {
        let Config { env, prompt, policy, rollout, .. } = self.config;
        if !prompt.pictures {
            if policy.model.is_none() && policy.scratch.vision.is_some() {
                self.fail(
                    "policy.scratch.vision",
                    "is set, and prompts show no pictures; set prompt.pictures = true, or leave it out",
                );
            }
            return;
        }
        if prompt.layout == Layout::Concatenated {
            self.fail(
                "prompt.layout",
                "is \"concatenated\", and prompts with pictures show only the current picture; set prompt.layout = \"windowed\"",
            );
        }
        let draws = self
            .registries
            .environments
            .kind(&env.kind)
            .is_ok_and(|kind| !kind.schema()["properties"][DRAWN].is_null());
        if !draws {
            let kind = &env.kind;
            self.fail(
                "prompt.pictures",
                format!(
                    "is true, and the world `{kind}` draws no pictures; use sokoban or ezpoints, or leave it out"
                ),
            );
        } else if !env.settings.contains_key(DRAWN) {
            self.fail(
                "env.pictures",
                "is missing, and prompt.pictures is true; name a folder for the pictures, such as \"runs/pictures\"",
            );
        }
        if policy.device == Device::Cuda {
            self.fail(
                "policy.device",
                "is \"cuda\", and models that read pictures run on the CPU only; set policy.device = \"cpu\"",
            );
        }
        if matches!(policy.learner, PolicyLearnerConfig::Tinker(_)) {
            self.fail(
                "policy.learner.kind",
                "is \"tinker\", and a service gets no pictures; set it to \"native\", or prompt.pictures to false",
            );
        }
        match rollout.engine.as_ref().map(|servers| (servers.kind, servers.route)) {
            Some((ServerKind::Sglang, _)) => self.fail(
                "rollout.engine.kind",
                "is \"sglang\", which turns the tokens of a prompt with pictures into text and back; set it to \"vllm\", or \
                 leave the table out to sample in this process",
            ),
            Some((ServerKind::Vllm, ServerRoute::Completions)) => self.fail(
                "rollout.engine.route",
                "is \"completions\", which takes no pictures beside tokens; set it to \"generate\" and start vLLM 0.32 or \
                 newer with --enable-scale-out",
            ),
            Some((ServerKind::Vllm, ServerRoute::Generate)) | None => {}
        }
        if policy.model.is_some() {
            return;
        }
        match &policy.scratch.vision {
            None => self.fail(
                "policy.scratch.vision",
                "is missing, and prompt.pictures is true; add the table [policy.scratch.vision], or set policy.model to a \
                 model that reads pictures",
            ),
            Some(_) => self.tower(),
        }
    }

    fn tower(&mut self) {
        let scratch = &self.config.policy.scratch;
        let Some(vision) = &scratch.vision else { return };
        let (hidden, heads) = (vision.hidden_size, vision.heads);
        if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            let reason = format!(
                "is {hidden}, which is not policy.scratch.vision.heads = {heads} times a multiple of 4; rows and columns \
                 need that"
            );
            self.fail("policy.scratch.vision.hidden_size", reason);
        }
        let side = vision.patch_size * vision.merge_size;
        if side * side > vision.max_pixels {
            let reason = format!(
                "is {}, less than the {} pixels of a token (patch_size times merge_size, squared); raise it",
                vision.max_pixels,
                side * side
            );
            self.fail("policy.scratch.vision.max_pixels", reason);
        }
        let head = scratch.hidden_size / scratch.heads.max(1);
        if head < 8 {
            let reason = format!(
                "is {}, which with policy.scratch.heads = {} makes heads of width {head}; time, row and column of a picture \
                 need at least 8",
                scratch.hidden_size, scratch.heads
            );
            self.fail("policy.scratch.hidden_size", reason);
        }
    }
}
