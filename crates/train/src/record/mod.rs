//! The record of a run: its output, which a resume reads back.
//!
//! | file | subject |
//! |---|---|
//! | [`position`] | phase and step |
//! | [`directory`] | the files of a run |
//! | [`state`] | position, tasks drawn, KL coefficient: checkpoint state other than weights |
//! | [`checkpoint`] | complete and broken checkpoints |
//! | `abandoned` | obsolete results and checkpoints after a rewind or an interrupted start |
//! | [`earlier_configs`] | configs before a resume changed settings |
//! | [`panels`] | evaluation tasks |
//! | [`metrics`], [`tensorboard`] | metrics of each step |
//! | [`learning`] | warnings about a run that is not learning |
//! | [`lock`] | one process per run |
//! | [`observer`], `log` | messages of a run |

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
