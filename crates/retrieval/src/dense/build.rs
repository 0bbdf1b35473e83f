//! Making the vectors of a folder's passages.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::Arc;

use super::vectors::{Description, FORMAT, MANIFEST, Precision, VECTORS};
use super::{Encoder, check, kernel};
use crate::build::{BuildFolder, BuildProgress, DENSE, Watch};
use crate::manifest::Manifest;
use crate::{Passage, RetrievalError};

/// Passages that are encoded together.
const TOGETHER: usize = 256;

/// Settings of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenseOptions {
    /// Number format of vectors on disk.
    pub precision: Precision,
}

/// Encodes the passages that a folder has ([`crate::build::build`] puts them there) and writes their vectors.
///
/// # Errors
///
/// [`RetrievalError::Setting`] without passages, [`RetrievalError::File`] where there are vectors already or they can't be written,
/// [`RetrievalError::Encoder`] where the encoder fails, [`RetrievalError::Interrupted`] where `watch` said so.
pub fn build_vectors(
    folder: &BuildFolder,
    encoder: &dyn Encoder,
    options: DenseOptions,
    watch: Watch<'_>,
) -> Result<BuildProgress, RetrievalError> {
    folder.refuse_existing(DENSE)?;
    let passages = folder.passages()?.ok_or_else(|| RetrievalError::Setting {
        key: "passages".to_owned(),
        reason: "the folder has no passages yet: name a file of them".to_owned(),
    })?;
    let place = folder.unfinished(DENSE);
    std::fs::create_dir_all(&place).map_err(|error| RetrievalError::file(&place, &error))?;
    let path = place.join(VECTORS);
    let failed = |error: std::io::Error| RetrievalError::file(&path, &error);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(failed)?);
    let width = encoder.dimensions();
    let mut progress = BuildProgress { length: passages.len() as u64, ..BuildProgress::default() };
    let mut bytes = Vec::with_capacity(TOGETHER * width * options.precision.bytes());
    for start in (0..passages.len()).step_by(TOGETHER) {
        if watch(progress).is_break() {
            return Err(RetrievalError::Interrupted);
        }
        let end = (start + TOGETHER).min(passages.len());
        let together: Vec<Arc<Passage>> =
            (start..end).map(|position| passages.get(position as u32)).collect::<Result<_, _>>()?;
        let texts: Vec<&str> = together.iter().map(|passage| passage.contents.as_str()).collect();
        let vectors = encoder.passages(&texts)?;
        check(&vectors, texts.len(), width)?;
        bytes.clear();
        match options.precision {
            Precision::F32 => vectors.iter().for_each(|value| bytes.extend(value.to_le_bytes())),
            Precision::F16 => {
                if let Some(value) = vectors.iter().find(|value| value.abs() > 65504.0) {
                    return Err(RetrievalError::Encoder {
                        reason: format!("a vector holds {value}, which half precision has no number for"),
                    });
                }
                for &value in &vectors {
                    bytes.extend(kernel::narrow(value).to_le_bytes());
                }
            }
        }
        file.write_all(&bytes).map_err(failed)?;
        progress.passages = end as u64;
        progress.read = end as u64;
        progress.bytes += texts.iter().map(|text| text.len() as u64).sum::<u64>();
    }
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    let description = Description {
        vectors: passages.len() as u32,
        dimensions: width as u32,
        precision: options.precision,
        passages: passages.fingerprint().to_owned(),
        encoder: encoder.fingerprint(),
    };
    Manifest::new(FORMAT, description).write(&place, MANIFEST)?;
    folder.publish(DENSE)?;
    Ok(progress)
}
