//! Encodes a folder's passages.

use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::vectors::{Description, FORMAT, MANIFEST, Precision, VECTORS};
use super::{Encoder, check, kernel};
use crate::build::{BuildFolder, BuildProgress, DENSE, Watch};
use crate::manifest::Manifest;
use crate::{Passage, RetrievalError};

const TOGETHER: usize = 256;

/// Subfolder of unfinished vectors, kept because encoding can take days.
const PARTIAL: &str = "dense.partial";
/// Metadata of unfinished vectors. This file is deleted only after the folder has its final name,
/// so that a build interrupted at any point can resume.
const OF: &str = "of.json";

/// Settings of [`build_vectors`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenseOptions {
    /// Data type of stored vectors.
    pub precision: Precision,
}

/// Encodes a folder's passages (from [`crate::build::build`]) as vectors. An interrupted build
/// resumes, with a bit-identical result, if passages, encoder and precision are the same.
///
/// # Errors
///
/// Returns [`RetrievalError::Setting`] if there are no passages, [`RetrievalError::File`] if
/// vectors exist or cannot be written, [`RetrievalError::Encoder`] if encoding fails, and
/// [`RetrievalError::Interrupted`] if `watch` stopped the build.
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
    let width = encoder.dimensions();
    let description = Description {
        vectors: passages.len() as u32,
        dimensions: width as u32,
        precision: options.precision,
        passages: passages.fingerprint().to_owned(),
        encoder: encoder.fingerprint(),
        encoding: encoder.encoding(),
    };
    let place = folder.finished(PARTIAL);
    let path = place.join(VECTORS);
    let failed = |error: std::io::Error| RetrievalError::file(&path, &error);
    let (file, made) = open_partial(&place, &description, encoder).map_err(failed)?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut progress = BuildProgress {
        length: passages.len() as u64,
        passages: made as u64,
        read: made as u64,
        ..BuildProgress::default()
    };
    let mut bytes = Vec::with_capacity(TOGETHER * width * options.precision.bytes());
    for start in (made..passages.len()).step_by(TOGETHER) {
        if watch(progress).is_break() {
            file.flush().map_err(failed)?;
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
    Manifest::new(FORMAT, description).write_without(&place, MANIFEST, &[OF])?;
    let finished = folder.finished(DENSE);
    turnwise_files::rename_into_place(&place, &finished)
        .map_err(|error| RetrievalError::file(&finished, &error))?;
    // The vectors are complete even if it stays.
    let _ = fs::remove_file(finished.join(OF));
    Ok(progress)
}

/// Opens the file of unfinished vectors if they match the settings, or creates a new file. Returns
/// the file, positioned at its end, and the number of passages already encoded.
fn open_partial(
    place: &Path,
    description: &Description,
    encoder: &dyn Encoder,
) -> std::io::Result<(File, usize)> {
    let row = description.dimensions as usize * description.precision.bytes();
    let found = fs::read(place.join(OF)).ok().and_then(|of| serde_json::from_slice(&of).ok());
    if found.is_some_and(|found| is_begun(&found, description, encoder)) {
        let mut file = File::options().create(true).truncate(false).write(true).open(place.join(VECTORS))?;
        // Whole calls only, so that the same passages are encoded together.
        let whole = file.metadata()?.len() as usize / (row * TOGETHER).max(1) * TOGETHER;
        let whole = whole.min(description.vectors as usize / TOGETHER * TOGETHER);
        file.set_len((whole * row) as u64)?;
        file.seek(SeekFrom::End(0))?;
        return Ok((file, whole));
    }
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(place)?;
    let file = File::create(place.join(VECTORS))?;
    turnwise_files::write_atomically(&place.join(OF), &serde_json::to_vec(description)?)?;
    Ok((file, 0))
}

/// Returns true if unfinished vectors match the settings. The encoder's name includes its settings.
fn is_begun(found: &Description, wanted: &Description, encoder: &dyn Encoder) -> bool {
    let rest = |of: &Description| Description { encoder: String::new(), encoding: None, ..of.clone() };
    rest(found) == rest(wanted) && encoder.is_named(&found.encoder)
}
