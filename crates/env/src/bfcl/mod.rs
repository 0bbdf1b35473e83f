//! BFCL's multi-turn tasks: requests of a user that are met by calling functions of eight APIs with states.

pub mod python;
