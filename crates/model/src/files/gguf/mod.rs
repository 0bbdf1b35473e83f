//! GGUF, the format of llama.cpp and of programs that build on it.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | a model written as one file |
//! | `settings.rs` | metadata of the architecture |
//! | `tensors.rs` | names, order of rows and number types of the weights |
//! | `vocabulary.rs` | metadata of the tokenizer |
//! | `writer.rs` | the container |

mod settings;
mod tensors;
mod vocabulary;
mod writer;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::Path;

use turnwise_text::Tokenizer;

pub use self::tensors::GgufType;
use crate::{ModelError, Parameters};

/// Writes a model and its tokenizer as one GGUF file, whole or not at all.
///
/// The file has the content that llama.cpp's converter writes for the same folder: version 3, the tokenizer as
/// byte-level BPE with its chat template, norms and biases in `f32`, matrices in the given type. Rows of Llama's query and key projections are
/// interleaved, because llama.cpp rotates neighbouring pairs there.
///
/// # Errors
/// Fails if the model reads pictures or is a critic, if its positions are scaled by `YaRN`, if the tokenizer is not one of
/// the byte-level BPE tokenizers that llama.cpp knows by name, if a weight does not fit into `f16`, or if the file cannot
/// be written.
pub fn write_gguf(
    parameters: &Parameters<f32>,
    tokenizer: &Tokenizer,
    name: &str,
    path: &Path,
    number_type: GgufType,
) -> Result<(), ModelError> {
    let mut metadata = settings::of(&parameters.config, name, number_type).map_err(file_error(path))?;
    metadata.extend(vocabulary::of(&parameters.config, tokenizer).map_err(file_error(path))?);
    let tensors = tensors::of(parameters, number_type).map_err(file_error(path))?;
    turnwise_files::write_shared(path, |file| {
        let mut out = std::io::BufWriter::new(file);
        writer::write(&mut out, &metadata, &tensors)?;
        out.flush()
    })
    .map_err(ModelError::io(path))
}

fn file_error(path: &Path) -> impl Fn(String) -> ModelError + '_ {
    move |reason| ModelError::file(path, reason)
}
