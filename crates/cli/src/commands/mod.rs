//! One file per command: arguments in, resolved config, work, and what the user sees.

pub(crate) mod analyze;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod credit;
pub(crate) mod env;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod index;
pub(crate) mod output;
pub(crate) mod picture;
pub(crate) mod play;
pub(crate) mod quickstart;
pub(crate) mod rollout;
pub(crate) mod search;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod turnrd;
pub(crate) mod web;
