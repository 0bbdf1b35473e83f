use serde::{Deserialize, Serialize};

/// Shape of a schedule after the warm-up, as a fraction of the peak rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScheduleKind {
    /// Always 1.
    #[default]
    Constant,
    /// Half a cosine from 1 down to `min_lr_ratio`.
    Cosine {
        /// Final fraction of the peak rate.
        #[schemars(range(min = 0.0, max = 1.0))]
        min_lr_ratio: f64,
    },
    /// 1 until `decay_start`, then linear down to `min_lr_ratio`.
    Linear {
        /// Fraction of the run, including warm-up, before the decay starts.
        #[schemars(range(min = 0.0, max = 1.0))]
        decay_start: f64,
        /// Final fraction of the peak rate.
        #[schemars(range(min = 0.0, max = 1.0))]
        min_lr_ratio: f64,
    },
}

/// Learning rate schedule of a run with a known number of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Peak learning rate.
    pub peak: f64,
    /// Number of linear warm-up steps, from `peak / warmup_steps` to `peak`.
    pub warmup_steps: u64,
    /// Number of steps; the last one reaches the final rate.
    pub total_steps: u64,
    /// Shape after the warm-up.
    pub shape: ScheduleKind,
}

impl Schedule {
    /// Returns the rate of `step`, counted from 0.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let last = self.total_steps.saturating_sub(1) as f64;
        let way = |start: f64| {
            if last > start { ((step as f64 - start) / (last - start)).clamp(0.0, 1.0) } else { 1.0 }
        };
        let warm = self.warmup_steps.saturating_sub(1) as f64;
        self.peak
            * match self.shape {
                ScheduleKind::Constant => 1.0,
                ScheduleKind::Cosine { min_lr_ratio } => {
                    min_lr_ratio
                        + (1.0 - min_lr_ratio) * 0.5 * (1.0 + (std::f64::consts::PI * way(warm)).cos())
                }
                ScheduleKind::Linear { decay_start, min_lr_ratio } => {
                    1.0 - (1.0 - min_lr_ratio) * way((decay_start * self.total_steps as f64).max(warm))
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(shape: ScheduleKind, steps: &[u64]) -> Vec<f64> {
        let schedule = Schedule { peak: 2.0, warmup_steps: 4, total_steps: 101, shape };
        steps.iter().map(|&step| schedule.learning_rate(step)).collect()
    }

    #[test]
    fn every_shape_has_its_landmarks() {
        assert_eq!(rates(ScheduleKind::Constant, &[0, 1, 3, 4, 100, 500]), [0.5, 1.0, 2.0, 2.0, 2.0, 2.0]);
        let cosine = rates(ScheduleKind::Cosine { min_lr_ratio: 0.1 }, &[3, 100, 500]);
        assert!((cosine[0] - 2.0).abs() < 1e-12 && (cosine[1] - 0.2).abs() < 1e-12, "{cosine:?}");
        assert_eq!(cosine[1], cosine[2]);
        let middle = Schedule {
            peak: 2.0,
            warmup_steps: 1,
            total_steps: 101,
            shape: ScheduleKind::Cosine { min_lr_ratio: 0.1 },
        };
        assert!((middle.learning_rate(50) - 1.1).abs() < 1e-12);
        let linear = rates(ScheduleKind::Linear { decay_start: 0.5, min_lr_ratio: 0.05 }, &[3, 50, 100, 101]);
        assert!((linear[0] - 2.0).abs() < 1e-12 && (linear[1] - 2.0).abs() < 1e-12, "{linear:?}");
        assert!((linear[2] - 0.1).abs() < 1e-12 && (linear[3] - 0.1).abs() < 1e-12, "{linear:?}");
        let falling = rates(
            ScheduleKind::Linear { decay_start: 0.5, min_lr_ratio: 0.05 },
            &(51..101).collect::<Vec<_>>(),
        );
        assert!(falling.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn a_run_of_no_length_does_not_divide_by_zero() {
        for shape in [
            ScheduleKind::Cosine { min_lr_ratio: 0.0 },
            ScheduleKind::Linear { decay_start: 1.0, min_lr_ratio: 0.5 },
        ] {
            for total_steps in 0..3 {
                let schedule = Schedule { peak: 1.0, warmup_steps: 0, total_steps, shape };
                assert!((0..4).all(|step| schedule.learning_rate(step).is_finite()));
            }
        }
    }
}
