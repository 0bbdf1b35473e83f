use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::refused;

/// Parses the bytes of a NumPy `float64` array.
pub(crate) fn floats(bytes: &[u8]) -> PyResult<Vec<f64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(refused(format!("{} bytes are not a multiple of 8 (float64)", bytes.len())));
    }
    Ok(numbers.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect())
}

pub(crate) fn singles(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

/// Returns 8-byte floats, which `numpy.frombuffer` reads without copying.
pub(crate) fn buffer<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    PyByteArray::new(py, &bytes)
}

/// Returns one byte per bool.
pub(crate) fn flags<'py>(py: Python<'py>, values: &[bool]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = values.iter().map(|&value| u8::from(value)).collect();
    PyByteArray::new(py, &bytes)
}
