//! RMS norm (Qwen2.5-VL) and layer norm (Qwen2-VL).

use super::VisionConfig;
use super::tower::Tower;
use crate::Real;
use crate::ops::layer_norm::{layer_norm, layer_norm_backward};
use crate::ops::norm::{rms_norm, rms_norm_backward};
use crate::weights::NormLayout;

#[derive(Clone, Debug, Default)]
pub(super) struct Normed<T> {
    pub(super) rows: Vec<T>,
    /// Standardized rows of a layer norm.
    pub(super) standard: Vec<T>,
    /// For each row, the inverse of its standard deviation (layer norm) or of its root mean square.
    pub(super) inverse: Vec<T>,
}

impl<T: Real> Tower<'_, T> {
    pub(super) fn norm(&self, x: &[T], layout: &NormLayout, into: &mut Normed<T>) {
        let Normed { rows, standard, inverse } = into;
        let weight = self.weights(&layout.weight);
        rows.resize(x.len(), T::ZERO);
        inverse.resize(x.len() / weight.len(), T::ZERO);
        match &layout.bias {
            Some(bias) => {
                standard.resize(x.len(), T::ZERO);
                let weights = [weight, self.weights(bias)];
                layer_norm(x, weights, VisionConfig::EPSILON, [rows, standard, inverse]);
            }
            None => rms_norm(x, weight, VisionConfig::EPSILON, rows, inverse),
        }
    }

    /// Backpropagates through [`Tower::norm`], adding to `d_x` and `gradient`.
    pub(super) fn norm_backward(
        &self,
        d_y: &[T],
        x: &[T],
        layout: &NormLayout,
        normed: &Normed<T>,
        d_x: &mut [T],
        gradient: &mut [T],
    ) {
        let weight = self.weights(&layout.weight);
        if let Some(bias) = &layout.bias {
            let both = &mut gradient[layout.weight.start..bias.end];
            let (d_weight, d_bias) = both.split_at_mut(weight.len());
            let kept = [weight, &normed.standard, &normed.inverse];
            layer_norm_backward(d_y, kept, [d_x, d_weight, d_bias]);
        } else {
            let d_weight = Some(&mut gradient[layout.weight.clone()]);
            rms_norm_backward(d_y, x, weight, &normed.inverse, d_x, d_weight);
        }
    }
}
