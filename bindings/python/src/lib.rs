//! Extension module `turnwise._native` of the Python package.
//!
//! Arrays are passed as byte buffers, and trajectories as dicts and lists. Python checks array
//! shapes, and Rust checks everything else. Computation releases the GIL. Errors are `ValueError`s,
//! or `OSError`s for files.

#![cfg(feature = "python")]
#![expect(clippy::needless_pass_by_value, reason = "arguments come from Python by value")]

mod benchmark;
mod credit;
mod files;
mod methods;
mod numbers;
mod objective;
#[cfg(feature = "program")]
mod program;
mod value;

use std::fmt::Display;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

fn refused(reason: impl Display) -> PyErr {
    PyValueError::new_err(reason.to_string())
}

#[pymodule]
mod _native {
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::benchmark::score_truth;
    #[pymodule_export]
    use super::credit::{credit, fields, presets};
    #[pymodule_export]
    use super::files::{read_dump, read_text, toml_to_json};
    #[pymodule_export]
    use super::methods::register_method;
    #[pymodule_export]
    use super::objective::{
        kl_estimate, policy_loss, selective_loss, supervised_loss, token_weights, value_loss,
    };
    #[cfg(feature = "program")]
    #[pymodule_export]
    use super::program::{evaluate, main, train};
}
