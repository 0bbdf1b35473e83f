//! CPU memory of prompt images and the vision tower.

use super::{MemoryPlan, NUMBER, PlanPhase, PlanSettings};
use crate::ModelConfig;
use crate::pictures::VisionConfig;
use crate::vision::{MOST_FEATURES, MOST_KEPT, TowerWork};
use crate::weights::tower_weights;

/// Number and size of a run's images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PicturePlan {
    /// Height and width after resizing.
    pub size: [usize; 2],
    /// Number of distinct images in memory.
    pub known: usize,
    /// Number of distinct images in one step's rollouts; a single pass may score all of them.
    pub scored: usize,
    /// Number of distinct images in a pass with gradients.
    pub differentiated: usize,
}

impl MemoryPlan {
    pub(super) fn pictures(&mut self, config: &ModelConfig, settings: &PlanSettings) {
        let (Some(vision), Some(pictures)) = (&config.vision, settings.pictures) else { return };
        let PicturePlan { size: [height, width], known, scored, differentiated } = pictures;
        let detail = format!("{known} pictures of {width} x {height} pixels");
        self.add(PlanPhase::Always, "pictures", (3 * height * width * known) as u64, detail);

        let tokens = (height / vision.factor()) * (width / vision.factor());
        let features = (tokens * config.hidden_size) as u64 * NUMBER;
        if settings.sampling.is_some() {
            // One more than the limit, which is checked before adding.
            let cached = (scored as u64 * features).min(MOST_FEATURES as u64 * NUMBER + features);
            let detail = format!("features of {tokens} tokens a picture, cached");
            self.add(PlanPhase::Sampling, "encoded pictures", cached, detail);
        }
        let work = TowerWork::of(vision, config.hidden_size, tokens);
        let count = |pictures: usize, each: usize| pictures as u64 * each as u64 * NUMBER;
        let lanes = settings.learner.lanes;
        // Policy, and a reference on another base.
        let sides = if settings.reference > 0 { 2 } else { 1 };
        let threads = rayon::current_num_threads();
        let scoring = sides * scored as u64 * features + count(threads.min(scored), work.forward);
        let trains_tower = settings.adapter_rank == 0;
        // Features, and their gradients in the sum and in every lane.
        let mut training = differentiated as u64 * features * (sides + 1 + lanes as u64);
        if trains_tower {
            let all = count(differentiated, work.kept);
            training += all.min(MOST_KEPT as u64);
            let at_a_time = if work.splits { 1 } else { lanes.min(differentiated) };
            let again = if all > MOST_KEPT as u64 { work.kept } else { 0 };
            training += count(at_a_time, work.backward + again);
            if !work.splits {
                training += count(at_a_time, tower_weights(config));
            }
        } else {
            training += count(threads.min(differentiated), work.forward);
        }
        let detail = format!("{differentiated} pictures with a gradient, {scored} scored");
        self.add(PlanPhase::Training, "tower", training.max(scoring), detail);
    }
}

/// Returns the largest image size with at most this many tokens.
pub(crate) fn largest(vision: &VisionConfig, tokens: usize) -> [usize; 2] {
    let factor = vision.factor();
    [factor, factor * (vision.image.max_pixels / (factor * factor)).clamp(1, tokens.max(1))]
}

impl PicturePlan {
    /// Returns an image's size after resizing for the tower; for unknown sizes, the largest that
    /// fits the context.
    pub fn size(vision: &VisionConfig, drawn: Option<[usize; 2]>, max_model_len: usize) -> [usize; 2] {
        let pixels = [vision.image.min_pixels, vision.image.max_pixels];
        drawn
            .and_then(|drawn| crate::pictures::smart_resize(drawn, vision.factor(), pixels).ok())
            .unwrap_or_else(|| largest(vision, max_model_len))
    }
}
