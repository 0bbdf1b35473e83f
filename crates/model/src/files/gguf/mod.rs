//! Export to GGUF, the file format of llama.cpp.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | writes a model as one file |
//! | `settings.rs` | metadata of the architecture |
//! | `tensors.rs` | names, row order and number types of the weights |
//! | `vocabulary.rs` | metadata of the tokenizer |
//! | `writer.rs` | the GGUF container |

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

/// Writes a model and its tokenizer atomically as one GGUF file.
///
/// The file matches that of llama.cpp's converter: version 3, a byte-level BPE tokenizer with chat
/// template, norms and biases in `f32`, and matrices in the given type. Rows of Llama's query and
/// key projections are interleaved, because llama.cpp rotates neighbouring pairs.
///
/// # Errors
/// Fails if the model reads pictures, is a critic, or scales positions with `YaRN`. Also fails if
/// the tokenizer is not a byte-level BPE tokenizer known to llama.cpp, a weight does not fit into
/// `f16`, or the file cannot be written.
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
