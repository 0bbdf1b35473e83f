use std::sync::Arc;

use turnwise_core::{LearnError, StepReport};

use super::NativeLearner;
use crate::ops::gradients::sum_gradients;

const NORM_PIECE: usize = 1 << 20;

/// A gradient taken out of a learner.
#[derive(Debug)]
pub struct TakenGradient {
    lanes: Vec<Vec<f32>>,
    #[cfg(feature = "cuda")]
    cuda: Option<crate::cuda::TakenGradient>,
}

impl NativeLearner {
    /// Takes the accumulated gradient, leaving none.
    pub fn take_gradient(&mut self) -> TakenGradient {
        TakenGradient {
            lanes: std::mem::replace(&mut self.gradients, vec![Vec::new(); self.lanes.len()]),
            #[cfg(feature = "cuda")]
            cuda: self.cuda.as_mut().map(crate::cuda::Trained::take),
        }
    }

    /// Replaces the accumulated gradient by `taken`, times `factor`.
    pub fn put_gradient(&mut self, taken: TakenGradient, factor: f64) {
        self.gradients = taken.lanes;
        let factor = factor as f32;
        if factor != 1.0 {
            self.gradients.iter_mut().flatten().for_each(|value| *value *= factor);
        }
        #[cfg(feature = "cuda")]
        if let (Some(cuda), Some(gradient)) = (&mut self.cuda, taken.cuda) {
            cuda.put(gradient, factor);
        }
    }

    /// Returns the accumulated gradient's L2 norm.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn grad_norm(&self) -> Result<f64, LearnError> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            return Ok(cuda.norm()?);
        }
        let len = self.trained_len();
        // In pieces, to avoid another buffer of the gradient's size.
        let mut sum = vec![0.0; NORM_PIECE.min(len)];
        let mut squares = 0.0;
        for start in (0..len).step_by(NORM_PIECE) {
            let piece = start..len.min(start + NORM_PIECE);
            let sum = &mut sum[..piece.len()];
            sum.fill(0.0);
            for lane in self.gradients.iter().filter(|lane| !lane.is_empty()) {
                sum.iter_mut().zip(&lane[piece.clone()]).for_each(|(sum, &value)| *sum += value);
            }
            squares += sum.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        }
        Ok(squares.sqrt())
    }

    /// Returns the accumulated gradient in the layout of the trained parameters; empty if a device
    /// failed.
    pub fn gradient(&self) -> Vec<f32> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            return cuda.gradient().unwrap_or_default();
        }
        let mut total = vec![0.0; self.trained_len()];
        for lane in &self.gradients {
            total.iter_mut().zip(lane).for_each(|(total, &value)| *total += value);
        }
        total
    }

    /// Discards the accumulated gradient.
    pub fn clear_gradient(&mut self) {
        self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        // A failed pass leaves picture gradients in the lanes.
        self.lanes.iter_mut().for_each(|lane| drop(lane.take_picture_gradient()));
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.forget();
        }
    }

    pub(super) fn update(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        if !learning_rate.is_finite() {
            return Err(LearnError::Backend(format!("the learning rate is {learning_rate}")));
        }
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            // Release the weights, so that they are updated in place.
            self.lanes.iter_mut().for_each(|lane| lane.bind(None));
            let norm = cuda.norm()?;
            self.passes = 0;
            if !norm.is_finite() {
                cuda.forget();
                return Err(LearnError::Gradient(norm));
            }
            cuda.update(&self.config.optimizer, &mut self.optimizer, learning_rate, norm)?;
            return Ok(StepReport { grad_norm: norm, step: self.optimizer.step });
        }
        let len = self.trained_len();
        self.gradients.iter_mut().for_each(|gradient| gradient.resize(len, 0.0));
        let norm = sum_gradients(&mut self.gradients);
        self.passes = 0;
        if !norm.is_finite() {
            self.clear_gradient();
            return Err(LearnError::Gradient(norm));
        }
        let (tensors, weights) = if let Some(adapter) = &mut self.adapter {
            let adapter = Arc::make_mut(adapter);
            (&adapter.layout.tensors, &mut adapter.data)
        } else {
            let parameters = Arc::make_mut(&mut self.parameters);
            (&parameters.layout.tensors, &mut parameters.data)
        };
        let optimizer = &self.config.optimizer;
        self.optimizer.update(optimizer, tensors, learning_rate, norm, &self.gradients[0], weights);
        self.clear_gradient();
        Ok(StepReport { grad_norm: norm, step: self.optimizer.step })
    }
}
