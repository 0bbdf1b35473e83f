//! Models and adapters as files, and atomic writes.

pub(crate) mod gguf;
pub(crate) mod hf;
pub(crate) mod peft;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};

use crate::ModelError;

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    fs::read(path).map_err(ModelError::io(path))
}

pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    PathBuf::from(aside)
}

pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let mut file = File::create(path).map_err(ModelError::io(path))?;
    file.write_all(bytes).map_err(ModelError::io(path))?;
    file.sync_all().map_err(ModelError::io(path))
}

/// Writes a file atomically.
///
/// # Errors
/// Returns [`ModelError::Io`] with the path if the folder is missing or not writable, or the disk
/// is full.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    turnwise_files::write_atomically(path, bytes).map_err(ModelError::io(path))
}

/// Writes and syncs tensors, one at a time to save memory.
pub(crate) fn write_tensors_new<S: AsRef<str> + Ord + Display, V: View>(
    aside: &Path,
    tensors: impl IntoIterator<Item = (S, V)>,
    header: HashMap<String, String>,
) -> Result<(), ModelError> {
    // The library writes a private temporary file and renames it.
    turnwise_files::with_new_permissions(aside, |path| {
        safetensors::serialize_to_file(tensors, Some(header), path)
    })
    .map_err(|error| ModelError::file(aside, error))?;
    let file = File::options().write(true).open(aside).map_err(ModelError::io(aside))?;
    file.sync_all().map_err(ModelError::io(aside))
}

/// Writes tensors atomically, like [`write_atomically`].
pub(crate) fn write_tensors<S: AsRef<str> + Ord + Display, V: View>(
    path: &Path,
    tensors: impl IntoIterator<Item = (S, V)>,
    header: HashMap<String, String>,
) -> Result<(), ModelError> {
    let aside = aside(path);
    write_tensors_new(&aside, tensors, header)?;
    turnwise_files::rename_into_place(&aside, path).map_err(ModelError::io(path))
}

/// One tensor to write.
#[derive(Clone, Debug)]
pub struct TensorSlice<'a> {
    /// Name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
    /// Elements, row-major.
    pub values: &'a [f32],
}

/// Writes tensors and header entries atomically to a `safetensors` file.
///
/// # Errors
/// Fails if the file cannot be written, or if a tensor's values do not match its shape. The error
/// names the file.
pub fn save_tensors(
    path: &Path,
    tensors: &[TensorSlice<'_>],
    header: impl IntoIterator<Item = (String, String)>,
) -> Result<(), ModelError> {
    let views = tensors.iter().map(|TensorSlice { name, shape, values }| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes_of(values));
        view.map(|view| (name.clone(), view)).map_err(|error| ModelError::file(path, error))
    });
    write_tensors(path, views.collect::<Result<Vec<_>, _>>()?, header.into_iter().collect())
}

/// A `safetensors` file in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
    header: HashMap<String, String>,
}

impl TensorFile {
    /// Reads a `safetensors` file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is incomplete.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = read(path)?;
        let wrong = |error| ModelError::file(path, error);
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
        let header = metadata.metadata().clone().unwrap_or_default();
        SafeTensors::deserialize(&bytes).map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), bytes, header })
    }

    /// Returns a header entry.
    pub fn header(&self, key: &str) -> Option<&str> {
        self.header.get(key).map(String::as_str)
    }

    /// Copies a tensor's `f32`, `bf16` or `f16` elements.
    ///
    /// # Errors
    /// Fails if the tensor is missing, or if its shape or type is not the expected one. The error
    /// names the file and the tensor.
    pub fn copy(&self, name: &str, shape: &[usize], to: &mut [f32]) -> Result<(), ModelError> {
        let tensors =
            SafeTensors::deserialize(&self.bytes).map_err(|error| ModelError::file(&self.path, error))?;
        floats_of(&self.path, name, tensors.tensor(name).ok().as_ref(), shape, to)
    }
}

#[cfg(target_endian = "little")]
pub(crate) fn bytes_of(values: &[f32]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Checks a tensor's shape and converts its `f32`, `bf16` or `f16` elements.
pub(crate) fn floats_of(
    path: &Path,
    name: &str,
    view: Option<&TensorView<'_>>,
    shape: &[usize],
    to: &mut [f32],
) -> Result<(), ModelError> {
    let Some(view) = view else {
        return Err(ModelError::file(
            path,
            format!("tensor `{name}` is missing; the config asks for it with shape {shape:?}"),
        ));
    };
    check_shape(path, name, view, shape)?;
    decode(path, name, view.dtype(), view.data(), to)
}

pub(crate) fn check_shape(
    path: &Path,
    name: &str,
    view: &TensorView<'_>,
    shape: &[usize],
) -> Result<(), ModelError> {
    if view.shape() == shape {
        return Ok(());
    }
    Err(ModelError::file(
        path,
        format!(
            "tensor `{name}` has shape {:?}, but the config asks for {shape:?}; do config.json and this file \
             belong together?",
            view.shape()
        ),
    ))
}

pub(crate) fn decode(
    path: &Path,
    name: &str,
    dtype: Dtype,
    bytes: &[u8],
    to: &mut [f32],
) -> Result<(), ModelError> {
    match dtype {
        Dtype::F32 => {
            for (to, bytes) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *to = f32::from_le_bytes(*bytes);
            }
        }
        Dtype::BF16 => {
            for (to, bytes) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *to = half::bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        Dtype::F16 => {
            for (to, bytes) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *to = half::f16::from_le_bytes(*bytes).to_f32();
            }
        }
        other => {
            return Err(ModelError::file(
                path,
                format!("tensor `{name}` holds {other:?}; supported are F32, BF16 and F16"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn weights_have_the_permissions_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        fs::write(folder.path().join("plain"), b"").unwrap();
        let tensor = TensorSlice { name: "x".into(), shape: &[1], values: &[1.0] };
        for _ in 0..2 {
            save_tensors(&folder.path().join("weights"), std::slice::from_ref(&tensor), []).unwrap();
            assert_eq!(mode("weights"), mode("plain"));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn halves_are_read_exactly() {
        let read = |dtype, bits: u16| {
            let mut to = [0.0];
            decode(Path::new("halves"), "x", dtype, &bits.to_le_bytes(), &mut to).unwrap();
            to[0]
        };
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x0400, 6.103_515_6e-5),
            (0x3555, 0.333_251_95),
            (0x8000, 0.0),
        ] {
            assert_eq!(read(Dtype::F16, bits), value, "{bits:#x}");
        }
        assert_eq!(read(Dtype::F16, 0x7c00), f32::INFINITY);
        assert!(read(Dtype::F16, 0x7e00).is_nan());
        assert_eq!(read(Dtype::BF16, 0x3f82), 1.015_625);
    }
}
