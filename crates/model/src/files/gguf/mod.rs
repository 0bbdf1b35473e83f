//! Export to GGUF, llama.cpp's file format.

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

/// Atomically writes a model and its tokenizer (byte-level BPE and chat template) as one GGUF file
/// (version 3), like llama.cpp's converter. Norms and biases are `f32`; matrices have the given
/// type.
///
/// # Errors
/// Fails for vision models, critics, `YaRN` scaling, and tokenizers that llama.cpp does not
/// support. Fails if a weight is beyond the range of `f16` or the file cannot be written.
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
