//! Files that are written whole or not at all, and tensors in `safetensors` files.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};

use crate::ModelError;

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    fs::read(path).map_err(ModelError::io(path))
}

/// The path a file is written to before it takes its name.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".tmp");
    PathBuf::from(aside)
}

/// Writes a file and waits until it is on the disk.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let mut file = File::create(path).map_err(ModelError::io(path))?;
    file.write_all(bytes).map_err(ModelError::io(path))?;
    file.sync_all().map_err(ModelError::io(path))
}

/// Writes next to `path` and renames, so that the file is the old one, the new one or absent.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let aside = aside(path);
    write_new(&aside, bytes)?;
    fs::rename(&aside, path).map_err(ModelError::io(path))
}

/// Writes a file of tensors, one after the other without a copy of all of them in
/// memory, and waits until they are on the disk.
pub(crate) fn write_tensors_new<S: AsRef<str> + Ord + Display, V: View>(
    aside: &Path,
    tensors: impl IntoIterator<Item = (S, V)>,
    header: HashMap<String, String>,
) -> Result<(), ModelError> {
    safetensors::serialize_to_file(tensors, Some(header), aside)
        .map_err(|error| ModelError::file(aside, error))?;
    let file = File::options().write(true).open(aside).map_err(ModelError::io(aside))?;
    file.sync_all().map_err(ModelError::io(aside))
}

/// Writes tensors next to `path` and renames, as [`write_atomically`] does.
pub(crate) fn write_tensors<S: AsRef<str> + Ord + Display, V: View>(
    path: &Path,
    tensors: impl IntoIterator<Item = (S, V)>,
    header: HashMap<String, String>,
) -> Result<(), ModelError> {
    let aside = aside(path);
    write_tensors_new(&aside, tensors, header)?;
    fs::rename(&aside, path).map_err(ModelError::io(path))
}

/// One tensor of a file that is written.
#[derive(Clone, Debug)]
pub struct TensorSlice<'a> {
    /// Its name.
    pub name: String,
    /// Shape, outermost first.
    pub shape: &'a [usize],
    /// Its numbers, row-major.
    pub values: &'a [f32],
}

/// Writes tensors and entries of text to a `safetensors` file, whole or not at all.
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
    /// Reads a file; refuses one that is not whole.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = read(path)?;
        let wrong = |error| ModelError::file(path, error);
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
        let header = metadata.metadata().clone().unwrap_or_default();
        SafeTensors::deserialize(&bytes).map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), bytes, header })
    }

    /// An entry of text.
    pub fn header(&self, key: &str) -> Option<&str> {
        self.header.get(key).map(String::as_str)
    }

    /// Copies a tensor's numbers (`f32`, `bf16` or `f16`); the error names the tensor.
    pub fn copy(&self, name: &str, shape: &[usize], to: &mut [f32]) -> Result<(), ModelError> {
        let tensors =
            SafeTensors::deserialize(&self.bytes).map_err(|error| ModelError::file(&self.path, error))?;
        floats_of(&self.path, name, tensors.tensor(name).ok().as_ref(), shape, to)
    }
}

/// The little-endian bytes of some numbers.
#[cfg(target_endian = "little")]
pub(crate) fn bytes_of(values: &[f32]) -> &[u8] {
    pulp::bytemuck::cast_slice(values)
}

/// Checks a tensor's shape and converts its `f32`, `bf16` or `f16` numbers.
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

/// Refuses a tensor of another shape than the config's.
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

/// Converts little-endian `f32`, `bf16` or `f16` numbers.
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
                *to = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
            }
        }
        Dtype::F16 => {
            for (to, bytes) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *to = from_half(u16::from_le_bytes(*bytes));
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

/// The nearest `bf16`; of two equally near the even one.
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Rounding could carry a NaN over into infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// IEEE 754 binary16 to binary32, exact.
fn from_half(bits: u16) -> f32 {
    let (sign, exponent, mantissa) =
        (u32::from(bits >> 15) << 31, u32::from(bits >> 10) & 31, u32::from(bits) & 1023);
    let magnitude = match exponent {
        // Subnormal: a multiple of 2^-24.
        0 => (mantissa as f32 * 2f32.powi(-24)).to_bits(),
        31 => 0x7f80_0000 | (mantissa << 13),
        _ => ((exponent + 112) << 23) | (mantissa << 13),
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_exactly() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x0400, 6.103_515_6e-5),
            (0x3555, 0.333_251_95),
            (0x8000, 0.0),
        ] {
            assert_eq!(from_half(bits), value, "{bits:#x}");
        }
        assert_eq!(from_half(0x7c00), f32::INFINITY);
        assert!(from_half(0x7e00).is_nan());
    }
    #[test]
    fn bf16_is_rounded_to_the_nearest() {
        for (value, bits) in [
            (1.0, 0x3f80),
            // Halfway between two: to the even one, down and up.
            (f32::from_bits(0x3f80_8000), 0x3f80),
            (f32::from_bits(0x3f81_8000), 0x3f82),
            (f32::from_bits(0x3f80_8001), 0x3f81),
            (f32::from_bits(0x3f80_7fff), 0x3f80),
            (-0.0, 0x8000),
            (f32::MAX, 0x7f80),
            (f32::NEG_INFINITY, 0xff80),
        ] {
            assert_eq!(to_bf16(value), bits, "{value:e}");
        }
        assert!(f32::from_bits(u32::from(to_bf16(f32::NAN)) << 16).is_nan());
        assert!(f32::from_bits(u32::from(to_bf16(f32::from_bits(0x7f80_0001))) << 16).is_nan());
    }
}
