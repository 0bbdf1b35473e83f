//! A learner's data on the device: f32 weights, gradient and moments, and the weights rounded to
//! bfloat16.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::CudaError;
use super::decoder::Decoder;
use super::device::device;
use super::driver::Driver;
use super::head::Head;
use super::memory::{Bf16, Buffer};
use super::network::{Gradient, Network};

use crate::backend::Divergence;
use crate::ops::loss_head::RowStatistics;
use crate::packing::Packing;
use crate::weights::lora::Dropout;
use crate::{AdamWConfig, Adapter, OptimizerState, Parameters, TensorInfo, Weights};

const NORM_BLOCKS: usize = 1024;

pub(crate) struct Trained {
    driver: Arc<dyn Driver>,
    network: Arc<Network>,
    reference: Option<Arc<Network>>,
    weights: Buffer<f32>,
    gradient: Buffer<f32>,
    /// Error of a call that cannot return errors; the next pass or update returns this error.
    failed: Option<CudaError>,
    first: Buffer<f32>,
    second: Buffer<f32>,
    partials: Buffer<f64>,
    tensors: Vec<TensorInfo>,
    on_host: OnceLock<Weights>,
    /// The initial weights, kept for their layout and for an adapter's base.
    like: Weights,
    moments: OnceLock<OptimizerState>,
}

impl Trained {
    pub(crate) fn new(weights: &Weights) -> Result<Self, CudaError> {
        Self::on(device()?, weights)
    }

    pub(crate) fn on(driver: Arc<dyn Driver>, weights: &Weights) -> Result<Self, CudaError> {
        let base = weights.adapter.as_ref().and_then(|_| shared_base(&weights.base, None));
        let network = Arc::new(Network::upload(&driver, weights, base.as_ref())?);
        if weights.adapter.is_some() {
            shared_base(&weights.base, Some(&network.weights));
        }
        let trained = weights.trained();
        Ok(Self {
            network,
            reference: None,
            weights: Buffer::of(&driver, trained)?,
            gradient: Buffer::zeros(&driver, trained.len())?,
            failed: None,
            first: Buffer::zeros(&driver, trained.len())?,
            second: Buffer::zeros(&driver, trained.len())?,
            partials: Buffer::new(&driver, NORM_BLOCKS)?,
            tensors: weights.trained_tensors().to_vec(),
            on_host: OnceLock::from(weights.clone()),
            like: weights.clone(),
            moments: OnceLock::new(),
            driver,
        })
    }

    /// Returns the rounded weights, which later updates do not change.
    pub(crate) fn network(&self) -> Arc<Network> {
        Arc::clone(&self.network)
    }

    pub(crate) fn set_reference(&mut self, reference: &Weights) -> Result<(), CudaError> {
        self.reference = None;
        let same = self.like.adapter.is_some() && Arc::ptr_eq(&reference.base, &self.like.base);
        let base = same.then_some(&self.network.weights);
        self.reference = Some(Arc::new(Network::upload(&self.driver, reference, base)?));
        Ok(())
    }

    pub(crate) fn weights(&self) -> Result<Weights, CudaError> {
        if let Some(weights) = self.on_host.get() {
            return Ok(weights.clone());
        }
        let data = self.weights.all().download(&*self.driver)?;
        let base = &self.like.base;
        let weights = match &self.like.adapter {
            Some(adapter) => {
                let (config, model, layout) =
                    (adapter.config.clone(), adapter.model.clone(), adapter.layout.clone());
                let adapter = Some(Arc::new(Adapter { config, model, layout, data }));
                Weights { base: Arc::clone(base), adapter }
            }
            None => Parameters { config: base.config.clone(), layout: base.layout.clone(), data }.into(),
        };
        Ok(self.on_host.get_or_init(|| weights).clone())
    }

    pub(crate) fn moments(&self, step: u64) -> Result<&OptimizerState, CudaError> {
        if let Some(moments) = self.moments.get() {
            return Ok(moments);
        }
        let first = self.first.all().download(&*self.driver)?;
        let second = self.second.all().download(&*self.driver)?;
        Ok(self.moments.get_or_init(|| OptimizerState { step, first, second }))
    }

    pub(crate) fn restore(&mut self, state: &OptimizerState) -> Result<(), CudaError> {
        self.first.all().upload(&*self.driver, &state.first)?;
        self.second.all().upload(&*self.driver, &state.second)?;
        self.moments.take();
        Ok(())
    }

    /// Returns the gradient's L2 norm; waits for the device.
    pub(crate) fn norm(&self) -> Result<f64, CudaError> {
        if self.gradient.len() == 0 {
            return Ok(0.0);
        }
        let squares = self.network.kernels.square_sum(self.gradient.all(), self.partials.all())?;
        Ok(squares.sqrt())
    }

    /// Returns true if all trained weights are finite. Sums their squares in f64, which finite f32
    /// numbers cannot overflow. Waits for the device.
    pub(crate) fn finite(&self) -> Result<bool, CudaError> {
        Ok(self.network.kernels.square_sum(self.weights.all(), self.partials.all())?.is_finite())
    }

    pub(crate) fn restart(&mut self) -> Result<(), CudaError> {
        self.moments.take();
        self.forget();
        self.first.all().clear(&*self.driver)?;
        self.second.all().clear(&*self.driver)
    }

    pub(crate) fn release(&mut self) {
        self.gradient = Buffer::empty(&self.driver);
    }

    pub(crate) fn gradient(&self) -> Result<Vec<f32>, CudaError> {
        if self.gradient.len() == 0 {
            return Ok(vec![0.0; self.weights.len()]);
        }
        self.gradient.all().download(&*self.driver)
    }

    pub(crate) fn forget(&mut self) {
        if let Err(error) = self.gradient.all().clear(&*self.driver) {
            self.failed = Some(error);
        }
    }

    pub(crate) fn take(&mut self) -> TakenGradient {
        TakenGradient(std::mem::replace(&mut self.gradient, Buffer::empty(&self.driver)))
    }

    pub(crate) fn put(&mut self, gradient: TakenGradient, factor: f32) {
        self.gradient = gradient.0;
        if factor != 1.0
            && let Err(error) = self.network.kernels.scale(self.gradient.all(), factor)
        {
            self.failed = Some(error);
        }
    }

    fn ready(&mut self) -> Result<(), CudaError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.gradient.len() == 0 {
            self.gradient = Buffer::zeros(&self.driver, self.weights.len())?;
        }
        Ok(())
    }

    /// Applies one AdamW update with a finite gradient of norm `norm`, then zeroes the gradient.
    pub(crate) fn update(
        &mut self,
        config: &AdamWConfig,
        state: &mut OptimizerState,
        learning_rate: f64,
        norm: f64,
    ) -> Result<(), CudaError> {
        self.ready()?;
        if Arc::get_mut(&mut self.network).is_none() {
            self.network = Arc::new(self.network.duplicate()?);
        }
        let (rates, keep) = state.rates(config, learning_rate, norm);
        self.on_host.take();
        self.moments.take();
        for (range, decays) in runs_of_decay(&self.tensors) {
            let moved = [&self.weights, &self.first, &self.second].map(|buffer| buffer.part(range.clone()));
            let keep = if decays { keep } else { 1.0 };
            let (gradient, copy) = (self.gradient.part(range.clone()), self.network.trained().part(range));
            self.network.kernels.adamw(&rates, keep, gradient, moved, copy)?;
        }
        if let (Some(value), Some(range)) = (&self.network.value, self.network.value_range()) {
            self.weights.part(range).copy_to(&*self.driver, value.all())?;
        }
        state.step += 1;
        self.gradient.all().clear(&*self.driver)
    }

    pub(crate) fn bind(&mut self, of_reference: bool) -> Result<Bound, CudaError> {
        self.ready()?;
        let network = match &self.reference {
            Some(reference) if of_reference => Arc::clone(reference),
            _ => self.network(),
        };
        let gradient = Gradient { at: self.gradient.all(), frozen: self.like.adapter.is_some() };
        Ok(Bound { network, reference: self.reference.clone(), gradient })
    }
}

#[derive(Debug)]
pub(crate) struct TakenGradient(Buffer<f32>);

/// Returns an adapter's frozen base if it is already on the device, so that policy and critic, for
/// example, share it. If the base is not found, registers `uploaded` (if any) for later calls.
fn shared_base(
    base: &Arc<Parameters<f32>>,
    uploaded: Option<&Arc<Buffer<Bf16>>>,
) -> Option<Arc<Buffer<Bf16>>> {
    type Bases = Vec<(Weak<Parameters<f32>>, Weak<Buffer<Bf16>>)>;
    static BASES: Mutex<Bases> = Mutex::new(Vec::new());
    let mut bases = BASES.lock().unwrap_or_else(PoisonError::into_inner);
    bases.retain(|(_, buffer)| buffer.strong_count() > 0);
    let same = |host: &Weak<Parameters<f32>>| std::ptr::eq(host.as_ptr(), Arc::as_ptr(base));
    let found = bases.iter().find(|(host, _)| same(host)).and_then(|(_, buffer)| buffer.upgrade());
    if let (None, Some(uploaded)) = (&found, uploaded) {
        bases.push((Arc::downgrade(base), Arc::downgrade(uploaded)));
    }
    found
}

fn runs_of_decay(tensors: &[TensorInfo]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for tensor in tensors {
        match runs.last_mut() {
            Some((range, decays)) if *decays == tensor.decays && range.end == tensor.range.start => {
                range.end = tensor.range.end;
            }
            _ => runs.push((tensor.range.clone(), tensor.decays)),
        }
    }
    runs
}

#[derive(Clone)]
pub(crate) struct Bound {
    network: Arc<Network>,
    reference: Option<Arc<Network>>,
    gradient: Gradient,
}

#[derive(Default)]
pub(crate) struct CudaPasses {
    bound: Option<Bound>,
    decoder: Option<Decoder>,
    recompute: bool,
}

impl CudaPasses {
    pub(crate) fn new(recompute: bool) -> Self {
        Self { recompute, ..Self::default() }
    }

    /// Sets the buffers of the next passes; `None` releases them.
    pub(crate) fn bind(&mut self, bound: Option<Bound>) {
        self.bound = bound;
    }

    pub(crate) fn bind_reference(&self, to: &mut Self) {
        to.bound = self.bound.as_ref().and_then(|bound| {
            let network = bound.reference.clone()?;
            Some(Bound { network, ..bound.clone() })
        });
    }

    fn bound(&mut self) -> Result<(Bound, &mut Decoder), CudaError> {
        let missing = || CudaError::Call { call: "pass", reason: "no weights were given".into() };
        let bound = self.bound.clone().ok_or_else(missing)?;
        let recompute = self.recompute;
        let decoder = self.decoder.get_or_insert_with(|| Decoder::new(&bound.network, recompute));
        Ok((bound, decoder))
    }

    pub(crate) fn forward_layers(
        &mut self,
        packing: &Packing,
        dropout: Option<Dropout>,
    ) -> Result<(), CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.forward(&bound.network, packing, dropout)
    }

    pub(crate) fn forward(
        &mut self,
        packing: &Packing,
        temperature: f64,
        dropout: Option<Dropout>,
    ) -> Result<&[RowStatistics<f32>], CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.forward(&bound.network, packing, dropout)?;
        decoder.head.score(&bound.network, packing, temperature)?;
        Ok(&decoder.head.statistics)
    }

    pub(crate) fn statistics(&self) -> &[RowStatistics<f32>] {
        self.decoder.as_ref().map_or(&[], |decoder| &decoder.head.statistics)
    }

    pub(crate) fn means(&mut self, ranges: &[Range<usize>]) -> Result<Vec<Vec<f32>>, CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.head.means(&bound.network, ranges)
    }

    pub(crate) fn begin_backward(&mut self, packing: &Packing) -> Result<(), CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.head.begin_backward(&bound.network, packing.targets.len())
    }

    pub(crate) fn backward_outputs(
        &mut self,
        packing: &Packing,
        sequences: &Range<usize>,
        derivatives: &[[f32; 2]],
    ) -> Result<(), CudaError> {
        let (bound, decoder) = self.bound()?;
        let targets = packing.targets_of(sequences);
        decoder.head.backward(&bound.network, packing, &targets, derivatives, bound.gradient)
    }

    pub(crate) fn divergences(
        &mut self,
        terms: &[Divergence],
        reference: Option<&Self>,
    ) -> Result<Vec<f32>, CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.head.divergences(&bound.network, terms, reference.and_then(Self::rows))
    }

    pub(crate) fn backward_divergences(
        &mut self,
        terms: &[Divergence],
        numbers: (&[f32], &[f32]),
        reference: Option<&Self>,
    ) -> Result<(), CudaError> {
        let (bound, decoder) = self.bound()?;
        let rows = reference.and_then(Self::rows);
        decoder.head.backward_divergences(&bound.network, terms, numbers, rows, bound.gradient)
    }

    pub(crate) fn backward_layers(
        &mut self,
        packing: &Packing,
        sequences: &Range<usize>,
    ) -> Result<(), CudaError> {
        let (bound, decoder) = self.bound()?;
        decoder.backward(&bound.network, packing, sequences, bound.gradient)
    }

    fn rows(&self) -> Option<(&Network, &Head)> {
        Some((&*self.bound.as_ref()?.network, &self.decoder.as_ref()?.head))
    }
}
