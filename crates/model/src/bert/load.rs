use std::path::{Path, PathBuf};

use safetensors::tensor::SafeTensors;

use super::BertConfig;
use crate::{ModelError, files};

const WEIGHTS: &str = "model.safetensors";

#[derive(Clone, Debug)]
pub(super) struct Linear {
    /// `[outputs, inputs]`.
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

#[derive(Clone, Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) attention: Linear,
    pub(super) attention_norm: Norm,
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) norm: Norm,
}

#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub(super) words: Vec<f32>,
    pub(super) positions: Vec<f32>,
    /// Embedding of the first token type.
    pub(super) kind: Vec<f32>,
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
}

/// The tensors of a weights file, which holds either a bare BERT or a BERT with a task head.
struct Tensors<'a> {
    path: PathBuf,
    tensors: SafeTensors<'a>,
    prefix: &'static str,
}

impl Tensors<'_> {
    fn take(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let name = format!("{}{name}", self.prefix);
        let found = self.tensors.tensor(&name).ok();
        // The shape is checked later, so that a typo in the config cannot exhaust memory.
        let mut values = vec![0.0; found.as_ref().map_or(0, |view| view.shape().iter().product())];
        files::floats_of(&self.path, &name, found.as_ref(), shape, &mut values)?;
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(ModelError::file(
                &self.path,
                format!("tensor `{name}` holds {} at {place}, which is no number", values[place]),
            ));
        }
        Ok(values)
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, ModelError> {
        Ok(Linear {
            weight: self.take(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.take(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, ModelError> {
        // The first checkpoints have the LayerNorm paper's names.
        let old = self.tensors.tensor(&format!("{}{name}.gamma", self.prefix)).is_ok();
        let [weight, bias] = if old { ["gamma", "beta"] } else { ["weight", "bias"] };
        Ok(Norm {
            weight: self.take(&format!("{name}.{weight}"), &[width])?,
            bias: self.take(&format!("{name}.{bias}"), &[width])?,
        })
    }
}

/// Loads the weights in `folder`; ignores the tensors of a pooler or task head.
pub(super) fn load(folder: &Path, config: &BertConfig) -> Result<Weights, ModelError> {
    let path = folder.join(WEIGHTS);
    if !path.exists() {
        return Err(ModelError::file(
            &path,
            "is missing; only safetensors are read (`AutoModel.from_pretrained(old).save_pretrained(new)` writes them)",
        ));
    }
    let bytes = files::read(&path)?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| ModelError::file(&path, error))?;
    let word = "embeddings.word_embeddings.weight";
    let prefix = if tensors.tensor(&format!("bert.{word}")).is_ok() { "bert." } else { "" };
    let tensors = Tensors { path, tensors, prefix };
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let mut kind = tensors.take("embeddings.token_type_embeddings.weight", &[config.types, hidden])?;
    kind.truncate(hidden);
    let layers = (0..config.layers)
        .map(|layer| {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            Ok(Layer {
                query: tensors.linear(&name("attention.self.query"), hidden, hidden)?,
                key: tensors.linear(&name("attention.self.key"), hidden, hidden)?,
                value: tensors.linear(&name("attention.self.value"), hidden, hidden)?,
                attention: tensors.linear(&name("attention.output.dense"), hidden, hidden)?,
                attention_norm: tensors.norm(&name("attention.output.LayerNorm"), hidden)?,
                up: tensors.linear(&name("intermediate.dense"), hidden, inner)?,
                down: tensors.linear(&name("output.dense"), inner, hidden)?,
                norm: tensors.norm(&name("output.LayerNorm"), hidden)?,
            })
        })
        .collect::<Result<_, ModelError>>()?;
    Ok(Weights {
        words: tensors.take(word, &[config.vocab_size, hidden])?,
        positions: tensors.take("embeddings.position_embeddings.weight", &[config.max_positions, hidden])?,
        kind,
        norm: tensors.norm("embeddings.LayerNorm", hidden)?,
        layers,
    })
}
