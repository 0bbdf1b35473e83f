//! Selects, weights and orders a pass's samples.
//!
//! Losses are means with weights `q_i = 0.5^(age_i / half_life)`. With `older_per_new = c`, a pass
//! reads the `n` samples of age 0 and only `k = round(c n)` older ones. The older samples are drawn
//! in proportion to `q_i` and weighted by `sum_old q / k`, so that the expected losses stay the
//! same.

use turnwise_core::Rng;

use super::{SampleSource, TurnRdConfig};

/// Returns a sample's weight at this age, never 0.
pub(super) fn weight_at(age: u32, half_life: f64) -> f64 {
    0.5f64.powf(f64::from(age) / half_life).max(f64::MIN_POSITIVE)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    /// Sample indices in reading order; older ones may repeat.
    pub(super) order: Vec<usize>,
    /// Weight that each drawn older sample gets instead of its own; `None` if all samples keep
    /// their own weights.
    pub(super) older_weight: Option<f64>,
}

impl Pass {
    pub(super) fn draw(config: &TurnRdConfig, samples: &dyn SampleSource, rng: &mut Rng) -> Self {
        let mut pass = Self { order: (0..samples.len()).collect(), older_weight: None };
        let (newest, older): (Vec<usize>, Vec<usize>) =
            pass.order.iter().partition(|&&index| samples.age(index) == 0);
        let wanted = (config.older_per_new * newest.len() as f64).round() as usize;
        // With too few older samples or no new ones, all are read with their own weights.
        if !newest.is_empty() && wanted < older.len() {
            let weights: Vec<f64> =
                older.iter().map(|&index| weight_at(samples.age(index), config.half_life)).collect();
            pass.order = newest;
            pass.order.extend(systematic(&weights, wanted, rng.uniform()).map(|drawn| older[drawn]));
            pass.older_weight = Some(weights.iter().sum::<f64>() / wanted.max(1) as f64);
        }
        rng.shuffle(&mut pass.order);
        pass
    }
}

/// Draws `count` indices in proportion to their weights by systematic sampling: at equally spaced
/// points of the cumulative weights, starting at `offset` (in spacings, [0, 1)).
fn systematic(weights: &[f64], count: usize, offset: f64) -> impl Iterator<Item = usize> {
    let step = weights.iter().sum::<f64>() / count.max(1) as f64;
    let (mut index, mut cumulated) = (0, weights.first().copied().unwrap_or(0.0));
    (0..count).map(move |point| {
        let target = (point as f64 + offset) * step;
        while cumulated <= target && index + 1 < weights.len() {
            index += 1;
            cumulated += weights[index];
        }
        index
    })
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Purpose, Seed};

    use super::super::Sample;
    use super::*;
    use turnwise_model::ModelError;

    struct Ages(Vec<u32>);

    impl SampleSource for Ages {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn age(&self, index: usize) -> u32 {
            self.0[index]
        }

        fn sample(&mut self, _index: usize) -> Result<Sample, ModelError> {
            Ok(Sample::default())
        }
    }

    #[test]
    fn a_pass_without_a_limit_has_every_sample_once() {
        let ages = Ages(vec![3, 2, 1, 0, 0]);
        let mut rng = Seed::derive(1, Purpose::Shuffle, &[]).rng();
        let config = TurnRdConfig { older_per_new: 1e6, ..TurnRdConfig::default() };
        let mut pass = Pass::draw(&config, &ages, &mut rng);
        pass.order.sort_unstable();
        assert_eq!(pass, Pass { order: vec![0, 1, 2, 3, 4], older_weight: None });
    }

    #[test]
    fn drawn_samples_have_the_weight_of_all() {
        let config = TurnRdConfig { older_per_new: 1.0, half_life: 1.0, ..TurnRdConfig::default() };
        // Weights of the older: 8 x 1/2, 8 x 1/4.
        let ages = Ages([vec![2; 8], vec![1; 8], vec![0; 4]].concat());
        let mut drawn = [0usize; 2];
        for seed in 0..400 {
            let pass = Pass::draw(&config, &ages, &mut Seed::derive(seed, Purpose::Shuffle, &[]).rng());
            assert_eq!(pass.order.len(), 8);
            for index in 16..20 {
                assert!(pass.order.contains(&index), "every new one is read");
            }
            assert_eq!(pass.older_weight, Some(6.0 / 4.0));
            for &index in pass.order.iter().filter(|&&index| index < 16) {
                drawn[usize::from(index >= 8)] += 1;
            }
        }
        let ratio = drawn[1] as f64 / drawn[0] as f64;
        assert!((1.9..2.1).contains(&ratio), "{drawn:?}");
    }

    #[test]
    fn few_old_samples_are_all_read() {
        let config = TurnRdConfig { older_per_new: 2.0, ..TurnRdConfig::default() };
        let ages = Ages(vec![1, 0]);
        let pass = Pass::draw(&config, &ages, &mut Seed::derive(1, Purpose::Shuffle, &[]).rng());
        assert_eq!((pass.order.len(), pass.older_weight), (2, None));
    }
}
