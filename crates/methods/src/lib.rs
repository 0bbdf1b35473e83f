//! Registries and presets of methods, and functions that replace one setting of a preset.
//!
//! Internal to the workspace, except for [`Methods`], which `turnwise-train` exports.
//!
//! ```
//! use turnwise_methods::{Methods, credit_with};
//!
//! let methods = Methods::builtin();
//! let gigpo = methods.credit("gigpo")?;
//! let changed = credit_with(&gigpo, "estimator.omega", 0.5.into())?;
//! assert_ne!(gigpo, changed);
//! let wrong = credit_with(&gigpo, "estimator.omgea", 0.5.into()).unwrap_err().to_string();
//! assert!(wrong.contains("Did you mean `omega`"), "{wrong}");
//! assert!(methods.credit("gipgo").unwrap_err().to_string().contains("did you mean `gigpo`"));
//! # Ok::<(), turnwise_methods::MethodError>(())
//! ```

mod error;
mod methods;
mod switches;
mod tables;

pub use error::MethodError;
pub use methods::Methods;
pub use switches::{credit_with, objective_with};
pub use tables::merge;
