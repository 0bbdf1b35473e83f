//! Finds and loads a policy, without training code.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! [`Policy`] is a model folder, an adapter, a checkpoint, a run or a hub model. The feature `hub`
//! adds downloads and uploads.
//!
//! ```
//! use turnwise_policy::Policy;
//!
//! let error = Policy::load("no/such/model/here".as_ref()).err().map(|error| error.to_string());
//! assert!(error.is_some_and(|text| text.starts_with("no/such/model/here: is not a model")));
//! ```

#[doc(hidden)]
pub mod base;
mod error;
mod hub;
mod load;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod run_folder;
#[cfg(test)]
mod testing;

pub use base::BaseModel;
pub use error::PolicyError;
#[cfg(feature = "hub")]
pub use hub::push;
pub use load::{Notes, Policy, policy_folder};
