//! Self-describing settings: ranges, descriptions and defaults are declared once and used for
//! validation, for the JSON Schema that editors read, and for the reference page.
//!
//! Internal to the workspace: nothing here is stable.
//!
//! A settings type derives `serde::Serialize`, `serde::Deserialize` and `schemars::JsonSchema`. Its
//! doc comments are the descriptions, its `Default` gives the defaults, and field attributes
//! declare ranges:
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! #[serde(default, deny_unknown_fields)]
//! struct Momentum {
//!     /// Decay of the mean of gradients.
//!     #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
//!     beta: f64,
//! }
//!
//! impl Default for Momentum {
//!     fn default() -> Self {
//!         Self { beta: 0.9 }
//!     }
//! }
//!
//! assert!(turnwise_settings::check(&Momentum { beta: 0.99 }).is_ok());
//! let error = turnwise_settings::check(&Momentum { beta: f64::NAN }).unwrap_err();
//! assert_eq!(error.to_string(), "beta = nan: must be a finite number, at least 0 and below 1 (default 0.9)");
//! ```

mod address;
mod annotate;
mod api_key;
mod assignment;
mod check;
mod hidden;
mod problem;
mod reference;
mod schema;
mod suggest;
#[cfg(test)]
mod tests;

pub use address::{AddressError, check_address};
pub use annotate::annotate;
pub use api_key::{ApiKeyError, api_key};
pub use assignment::{AssignmentError, assignment};
pub use check::{check, problems};
pub use hidden::is_hidden;
pub use problem::{Problem, SettingsError};
pub use reference::reference;
pub use schema::schema_of;
pub use suggest::suggest;
