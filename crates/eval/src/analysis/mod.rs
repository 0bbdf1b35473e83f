//! Analyses of a policy from the papers, on groups of trajectories that it plays.
//!
//! | file | subject |
//! |---|---|
//! | [`play`] | groups of trajectories of a policy |
//! | [`mod@surprisal`] | AEM, figure 2: does `alpha - 1` follow the relative surprisal of responses? |
//! | [`mod@attribution`] | STAPO, figure 2: do outlier turns have lower advantages, and depend less on goal and history? |

pub mod attribution;
pub mod play;
pub mod surprisal;

pub use attribution::{Attribution, AttributionStudy, attribution};
pub use play::{AnalysisSettings, play_groups};
pub use surprisal::{Surprisal, SurprisalSettings, SurprisalStudy, surprisal};
