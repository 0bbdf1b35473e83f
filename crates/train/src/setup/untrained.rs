//! Finds tags that a pretrained model cannot write, because their tokens are untrained.

use turnwise_env::parse::Style;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::Parameters;
use turnwise_text::Tokenizer;

/// A token counts as untrained if at least this many others have nearly the same output weights.
const TWINS: usize = 8;
/// Maximum squared distance of two rows that count as nearly equal, relative to the squared norm of
/// the first.
const NEAR: f32 = 1e-4;

/// Returns a warning if a tag in the template's responses is a single token whose output weights
/// equal those of several other tokens.
///
/// All these tokens get the same logit, so none of them becomes likely. An adapter changes no
/// output weights, so SFT cannot teach the tag. Example: `<tool_call>` in Qwen2.5-Coder.
pub(crate) fn untrained_tags(
    template: &PromptTemplate,
    tokenizer: &Tokenizer,
    model: &Parameters<f32>,
) -> Option<String> {
    let rules = template.rules();
    if !rules.uses_action_tags() {
        return None;
    }
    let found: Vec<(&str, usize)> = rules
        .action_tags
        .iter()
        .filter_map(|tag| match tokenizer.encode(tag).as_slice() {
            [token] => Some((tag.as_str(), twins(model, *token as usize)?)),
            _ => None,
        })
        .collect();
    let (first, twins) = *found.first()?;
    let names: Vec<String> = found.iter().map(|(tag, _)| format!("`{tag}`")).collect();
    let fix = if rules.style == Style::Call {
        "Let it write calls without tags: put a chat template such as configs/qwen25/json-calls.jinja into its folder as \
         chat_template.jinja, and set prompt.template = \"tools-llama\""
    } else {
        "Set prompt.template to a template without these tags"
    };
    Some(format!(
        "warning: the model was never trained on {}: the output weights of `{first}` equal those of {twins} other tokens, and \
         an adapter does not change them. {fix}",
        names.join(" and "),
    ))
}

fn twins(model: &Parameters<f32>, token: usize) -> Option<usize> {
    let width = model.config.hidden_size;
    let rows = model.data.get(model.layout.output.clone())?;
    let own = rows.get(token * width..(token + 1) * width)?;
    let limit = NEAR * own.iter().map(|value| value * value).sum::<f32>();
    let near = |row: &[f32]| {
        let mut distance = 0.0;
        row.iter().zip(own).all(|(one, other)| {
            distance += (one - other) * (one - other);
            distance <= limit
        })
    };
    // The row itself is one of them.
    let count = rows.chunks_exact(width).filter(|row| near(row)).count().saturating_sub(1);
    (count >= TWINS).then_some(count)
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Purpose, Seed};
    use turnwise_text::TokenizerConfig;

    use super::*;
    use crate::config::ScratchConfig;

    fn model(vocabulary: usize) -> Parameters<f32> {
        let small = ScratchConfig {
            hidden_size: 16,
            layers: 1,
            heads: 2,
            key_value_heads: 1,
            intermediate_size: 32,
            ..ScratchConfig::default()
        };
        let seed = Seed::derive(1, Purpose::Init, &[]);
        Parameters::init(small.model_config(vocabulary, 64), seed).unwrap()
    }

    #[test]
    fn tags_with_the_output_weights_of_unused_tokens_are_found() {
        let config = TokenizerConfig {
            max_pieces: 40,
            special_tokens: ["<tool_call>", "</tool_call>"].map(String::from).to_vec(),
            ..TokenizerConfig::default()
        };
        let tokenizer = Tokenizer::train(["go to the shelf"].into_iter(), &config).unwrap();
        let known = tokenizer.vocab_size();
        let mut model = model(known + TWINS);
        let warning = |name: &str, model: &Parameters<f32>| {
            untrained_tags(&PromptTemplate::named(name).unwrap(), &tokenizer, model)
        };
        assert_eq!(warning("tools", &model), None);

        let (width, start) = (model.config.hidden_size, model.layout.output.start);
        let tag = tokenizer.encode("</tool_call>")[0] as usize;
        let row = model.data[start + tag * width..][..width].to_vec();
        for unused in known..known + TWINS - 1 {
            model.data[start + unused * width..][..width].copy_from_slice(&row);
        }
        assert_eq!(warning("tools", &model), None);
        let last = known + TWINS - 1;
        model.data[start + last * width..][..width].copy_from_slice(&row);
        let found = warning("tools", &model).unwrap();
        assert!(found.contains("`</tool_call>`") && found.contains("tools-llama"), "{found}");
        assert_eq!(warning("tools-llama", &model), None);
        assert_eq!(warning("tools-python", &model), None);

        // A trained token: near, but not equal.
        for value in &mut model.data[start + last * width..][..width] {
            *value *= 1.1;
        }
        assert_eq!(warning("tools", &model), None);
    }
}
