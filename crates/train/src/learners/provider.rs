//! Provides credit inputs from a run's models.

use turnwise_core::{Batch, PerToken, PerTurn, TokenSequence, Tool, TurnSpan};
use turnwise_credit::{InputProvider, ScoreRequest};
use turnwise_text::TextError;

use crate::TrainError;
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::{self, RunDecomposer};
use crate::learners::policy::PolicyLearner;
use crate::record::observer::{Event, Observer};
use crate::rollout::prompting::Prompter;

pub(crate) struct ModelProvider<'a> {
    pub(crate) critic: Option<&'a mut RunCritic>,
    pub(crate) decomposer: Option<&'a mut RunDecomposer>,
    pub(crate) policy: &'a mut dyn PolicyLearner,
    pub(crate) prompter: Prompter<'a>,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) step: u64,
}

fn missing(what: &str) -> TrainError {
    TrainError::Config { origin: "credit".into(), reason: format!("needs {what}, and the run has none") }
}

impl InputProvider for ModelProvider<'_> {
    type Error = TrainError;

    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, TrainError> {
        self.critic.as_mut().ok_or_else(|| missing("a critic"))?.values(batch)
    }

    fn credits(&mut self, batch: &Batch) -> Result<PerTurn<f64>, TrainError> {
        let decomposer = self.decomposer.as_mut().ok_or_else(|| missing("a decomposer"))?;
        let mut warn = |text| self.observer.event(Event::Note(text));
        decomposer.credits(batch, self.step, self.policy, self.prompter.tokenizer, &mut warn)
    }

    fn hidden_states(&mut self, batch: &Batch, most_tokens: usize) -> Result<PerTurn<Vec<f32>>, TrainError> {
        decomposer::hidden_states(batch, most_tokens, self.policy, self.prompter.tokenizer)
    }

    fn scores(&mut self, batch: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, TrainError> {
        let longest = self.policy.max_model_len();
        let mut openings = Openings { prompter: self.prompter, known: Vec::new() };
        let scored = |request| scored_sequence(batch, request, &mut openings, longest);
        let found: Vec<Option<TokenSequence>> = requests.iter().map(scored).collect::<Result<_, _>>()?;
        let sequences: Vec<&TokenSequence> = found.iter().flatten().collect();
        let mut scores = self.policy.logprobs(&sequences)?.into_iter();
        Ok(found
            .iter()
            .map(|sequence| sequence.as_ref().and_then(|_| scores.next()).unwrap_or_default())
            .collect())
    }
}

struct Openings<'a> {
    prompter: Prompter<'a>,
    known: Vec<(Vec<Tool>, Vec<u32>)>,
}

impl Openings<'_> {
    fn of(&mut self, tools: &[Tool]) -> Result<&[u32], TextError> {
        let found = self.known.iter().position(|(known, _)| known == tools);
        let index = found.unwrap_or(self.known.len());
        if found.is_none() {
            self.known.push((tools.to_vec(), self.prompter.opening(tools)?));
        }
        Ok(&self.known[index].1)
    }
}

/// Returns the exact prompt with the request's preamble, and the tokens to score. Returns `None` if
/// nothing is to be scored, if the sequence exceeds `longest`, or if the prompt has no known
/// opening after which to insert the preamble.
fn scored_sequence(
    batch: &Batch,
    request: &ScoreRequest,
    openings: &mut Openings<'_>,
    longest: usize,
) -> Result<Option<TokenSequence>, TextError> {
    let trajectory =
        batch.groups.get(request.group).and_then(|group| group.trajectories.get(request.trajectory));
    let found = trajectory.and_then(|trajectory| {
        let mut sequences = trajectory.sequences.iter();
        sequences.find_map(|sequence| {
            let span = sequence.spans.iter().find(|span| span.turn == request.turn)?;
            Some((trajectory, &sequence.tokens, *span))
        })
    });
    let Some((trajectory, sampled, span)) = found else { return Ok(None) };
    let tokenizer = openings.prompter.tokenizer;
    let encode = |text: &str| tokenizer.encode(text);
    let mut tokens = sampled[..span.start].to_vec();
    if !request.preamble.is_empty() {
        let opening = openings.of(&trajectory.tools)?;
        if !tokens.starts_with(opening) {
            return Ok(None);
        }
        tokens.splice(opening.len()..opening.len(), encode(&request.preamble));
    }
    // A space before a word is part of its first token.
    let lead = request.lead.trim_end();
    tokens.extend(encode(lead));
    let start = tokens.len();
    match &request.text {
        Some(text) => tokens.extend(encode(&format!("{}{text}", &request.lead[lead.len()..]))),
        None => tokens.extend_from_slice(&sampled[span.start..span.end]),
    }
    let span = TurnSpan { turn: request.turn, start, end: tokens.len() };
    Ok((!span.is_empty() && tokens.len() <= longest).then(|| TokenSequence { tokens, spans: vec![span] }))
}

#[cfg(test)]
mod tests {
    use turnwise_text::{Tokenizer, TokenizerConfig};

    use super::*;
    use crate::config::{ConfigSource, Registries, load};
    use crate::rollout::prompting::PromptParts;

    #[test]
    fn an_opening_is_rendered_once_for_the_same_tools() {
        let config =
            load(&ConfigSource { preset: Some("quickstart".into()), ..ConfigSource::default() }).unwrap();
        let tokenizer =
            Tokenizer::train(["go to the shelf"].into_iter(), &TokenizerConfig::default()).unwrap();
        let parts = PromptParts::new(&config, &Registries::builtin(), &tokenizer, None).unwrap();
        let mut openings = Openings { prompter: parts.prompter(&tokenizer), known: Vec::new() };
        let tools = [Tool::from_json(r#"{ "name": "look" }"#).unwrap()];
        let [plain, called] = [&[][..], &tools].map(|tools| openings.prompter.opening(tools).unwrap());
        for _ in 0..3 {
            assert_eq!(openings.of(&[]).unwrap(), plain);
            assert_eq!(openings.of(&tools).unwrap(), called);
        }
        assert_eq!(openings.known.len(), 2);
        assert_ne!(plain, called, "the tools are listed before the text");
    }
}
