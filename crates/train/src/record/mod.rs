//! The record of a run: everything that it writes, and reads back when it is resumed.
//!
//! | file | subject |
//! |---|---|
//! | [`position`] | phase and step |
//! | [`directory`] | the files of a run |
//! | [`state`] | position, tasks drawn, KL coefficient: what a checkpoint holds besides weights |
//! | [`checkpoint`] | whole checkpoints, and what is left of broken ones |
//! | `abandoned` | results and checkpoints that a resume or a cut-off start left behind |
//! | [`earlier_configs`] | configs of before a resume changed settings |
//! | [`panels`] | the tasks that a run is evaluated on |
//! | [`metrics`], [`tensorboard`] | the numbers of every step |
//! | [`learning`] | warnings of a run that learns nothing |
//! | [`lock`] | one process a run |
//! | [`observer`], `log` | what a run says while it works |

pub(crate) mod abandoned;
pub mod checkpoint;
pub mod directory;
pub mod earlier_configs;
pub mod learning;
pub mod lock;
pub(crate) mod log;
pub mod metrics;
pub mod observer;
pub mod panels;
pub mod position;
pub mod state;
pub mod tensorboard;
