//! The papers' analyses of a policy, on groups of trajectories.

pub mod attribution;
pub mod play;
pub mod surprisal;

pub use attribution::{Attribution, AttributionStudy, attribution};
pub use play::{AnalysisSettings, play_groups};
pub use surprisal::{Surprisal, SurprisalSettings, SurprisalStudy, surprisal};
