//! Analyses of a policy from the papers, on groups of trajectories that it plays.

pub mod attribution;
pub mod play;
pub mod surprisal;

pub use attribution::{Attribution, AttributionStudy, attribution};
pub use play::{AnalysisSettings, play_groups};
pub use surprisal::{Surprisal, SurprisalSettings, SurprisalStudy, surprisal};
