use std::ops::Range;
use std::sync::Arc;

use super::CudaError;
use super::device::{Accumulate, device, matrix, multiply, narrow, wide};
use super::driver::{Driver, Matrix, Output};
use super::kernels::{Heads, Kernels, Preparation};
use super::memory::{Bf16, Buffer, Part};
use crate::weights::lora::{Adapter, AdapterLayout, Branch, Dropout, Joint};
use crate::{LayerLayout, ModelConfig, ParameterLayout, Parameters, Weights};

/// Weights in bfloat16, laid out like [`Parameters`], with an optional adapter.
pub(crate) struct Network {
    pub(crate) kernels: Kernels,
    pub(crate) config: ModelConfig,
    pub(crate) layout: ParameterLayout,
    /// Shared if frozen.
    pub(crate) weights: Arc<Buffer<Bf16>>,
    pub(crate) adapter: Option<DeviceAdapter>,
    /// A critic's value head: `[hidden]` weights and one bias.
    pub(crate) value: Option<Buffer<f32>>,
}

pub(crate) struct DeviceAdapter {
    pub(crate) layout: AdapterLayout,
    rank: usize,
    scale: f32,
    pub(crate) weights: Buffer<Bf16>,
}

/// Weights on a device, for sampling.
#[derive(Clone)]
pub struct DeviceWeights {
    pub(crate) network: Arc<Network>,
    pub(crate) version: u64,
}

impl DeviceWeights {
    pub(crate) fn upload(weights: &Weights, version: u64) -> Result<Self, CudaError> {
        Ok(Self { network: Arc::new(Network::upload(&device()?, weights, None)?), version })
    }
}

impl Network {
    /// Uploads the weights rounded to bfloat16; shares a base that is already on the device.
    pub(crate) fn upload(
        driver: &Arc<dyn Driver>,
        weights: &Weights,
        base: Option<&Arc<Buffer<Bf16>>>,
    ) -> Result<Self, CudaError> {
        let Parameters { config, layout, data } = &*weights.base;
        let kernels = Kernels::new(driver, config)?;
        let value = match &weights.adapter {
            Some(adapter) => adapter.layout.value.clone().map(|value| &adapter.data[value]),
            None => layout.value.clone().map(|value| &data[value]),
        };
        let value = value.map(|value| Buffer::of(driver, value)).transpose()?;
        let shared = match base {
            Some(base) => Arc::clone(base),
            None => Arc::new(upload_narrow(driver, data)?),
        };
        let adapter =
            weights.adapter.as_ref().map(|adapter| DeviceAdapter::upload(driver, adapter)).transpose()?;
        let (config, layout) = (config.clone(), layout.clone());
        Ok(Self { kernels, config, layout, weights: shared, adapter, value })
    }

    /// Copies the trained weights and shares the frozen ones.
    pub(crate) fn duplicate(&self) -> Result<Self, CudaError> {
        let driver = &self.kernels.driver;
        let value = self.value.as_ref().map(|value| value.duplicate(driver)).transpose()?;
        let adapter = self.adapter.as_ref().map(|adapter| adapter.duplicate(driver)).transpose()?;
        let weights = match &adapter {
            Some(_) => Arc::clone(&self.weights),
            None => Arc::new(self.weights.duplicate(driver)?),
        };
        let (kernels, config, layout) = (self.kernels.clone(), self.config.clone(), self.layout.clone());
        Ok(Self { kernels, config, layout, weights, adapter, value })
    }

    pub(crate) fn trained(&self) -> &Buffer<Bf16> {
        self.adapter.as_ref().map_or(&*self.weights, |adapter| &adapter.weights)
    }

    pub(crate) fn value_range(&self) -> Option<Range<usize>> {
        match &self.adapter {
            Some(adapter) => adapter.layout.value.clone(),
            None => self.layout.value.clone(),
        }
    }

    pub(crate) fn low_width(&self) -> usize {
        let branches = self.adapter.iter().flat_map(|adapter| {
            adapter.layout.layers.iter().flatten().map(|branch| branch.parts.len() * adapter.rank)
        });
        branches.max().unwrap_or(0)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.kernels.driver
    }

    pub(crate) fn at(&self, range: &Range<usize>) -> Part<Bf16> {
        self.weights.part(range.clone())
    }

    pub(crate) fn heads(&self) -> Heads {
        Heads { queries: self.config.num_attention_heads, keys: self.config.num_key_value_heads }
    }

    pub(crate) fn qkv_width(&self) -> usize {
        self.config.query_width() + 2 * self.config.key_value_width()
    }

    pub(crate) fn epsilon(&self) -> f32 {
        self.config.rms_norm_eps as f32
    }

    pub(crate) fn preparation(&self, layer: &LayerLayout) -> Preparation {
        Preparation {
            bias: layer.qkv_bias().map(|bias| self.at(&bias)),
            q_norm: head_norms(layer).map(|[norm, _]| self.at(&norm)),
            k_norm: head_norms(layer).map(|[_, norm]| self.at(&norm)),
            epsilon: self.epsilon(),
            heads: self.heads(),
        }
    }

    pub(crate) fn linear(&self, index: usize, joint: Joint) -> Linear<'_> {
        let layer = &self.layout.layers[index];
        let ModelConfig { hidden_size: hidden, intermediate_size: inner, .. } = self.config;
        let (weight, bias, inputs, outputs) = match joint {
            // Its bias is added when heads are rotated.
            Joint::Qkv => (layer.qkv_weight(), layer.qkv_bias(), hidden, self.qkv_width()),
            Joint::Output => {
                (layer.o_weight.clone(), layer.o_bias.clone(), self.config.query_width(), hidden)
            }
            Joint::GateUp => (layer.gate_up_weight(), layer.gate_up_bias(), hidden, 2 * inner),
            Joint::Down => (layer.down_weight.clone(), layer.down_bias.clone(), inner, hidden),
        };
        let position = Joint::ALL.iter().position(|&one| one == joint).unwrap_or_default();
        let adapter = self.adapter.as_ref().map(|adapter| (adapter, &adapter.layout.layers[index][position]));
        let adapter = adapter.filter(|(_, branch)| !branch.parts.is_empty());
        Linear { network: self, adapter, index, joint, weight, bias, inputs, outputs }
    }
}

pub(crate) fn upload_narrow(driver: &Arc<dyn Driver>, values: &[f32]) -> Result<Buffer<Bf16>, CudaError> {
    const PIECE: usize = 1 << 22;
    let buffer = Buffer::new(driver, values.len())?;
    for (index, piece) in values.chunks(PIECE).enumerate() {
        let rounded: Vec<Bf16> = piece.iter().map(|&value| Bf16::from_f32(value)).collect();
        buffer.part(index * PIECE..index * PIECE + piece.len()).upload(&**driver, &rounded)?;
    }
    Ok(buffer)
}

pub(crate) fn head_norms(layer: &LayerLayout) -> Option<[Range<usize>; 2]> {
    Some([layer.q_norm.clone()?, layer.k_norm.clone()?])
}

impl DeviceAdapter {
    fn upload(driver: &Arc<dyn Driver>, adapter: &Adapter<f32>) -> Result<Self, CudaError> {
        Ok(Self {
            layout: adapter.layout.clone(),
            rank: adapter.config.rank,
            scale: adapter.config.scale() as f32,
            weights: upload_narrow(driver, &adapter.data)?,
        })
    }

    fn duplicate(&self, driver: &Arc<dyn Driver>) -> Result<Self, CudaError> {
        let Self { layout, rank, scale, weights } = self;
        Ok(Self { layout: layout.clone(), rank: *rank, scale: *scale, weights: weights.duplicate(driver)? })
    }
}

pub(crate) struct Low {
    low: Buffer<Bf16>,
    d_low: Buffer<Bf16>,
    dropped: Buffer<Bf16>,
    d_dropped: Buffer<Bf16>,
    identities: Buffer<u64>,
    /// Dropout of this pass, with each row's sequence and position.
    dropout: Option<(Dropout, Range<usize>, Part<i32>)>,
}

impl Low {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self {
            low: Buffer::empty(driver),
            d_low: Buffer::empty(driver),
            dropped: Buffer::empty(driver),
            d_dropped: Buffer::empty(driver),
            identities: Buffer::empty(driver),
            dropout: None,
        }
    }

    pub(crate) fn grow(&mut self, network: &Network, rows: usize, backward: bool) -> Result<(), CudaError> {
        self.low.grow(rows * network.low_width())?;
        self.d_low.grow(if backward { rows * network.low_width() } else { 0 })
    }

    /// Sets the dropout of the next passes, given each row's sequence and position and the width of
    /// the widest input.
    pub(crate) fn begin(
        &mut self,
        dropout: Option<Dropout>,
        identities: &[u64],
        widest: usize,
        positions: Part<i32>,
    ) -> Result<(), CudaError> {
        self.dropout = None;
        if let Some(dropout) = dropout {
            self.identities.put(identities)?;
            let room = identities.len().next_multiple_of(256) * widest;
            self.dropped.grow(room)?;
            self.d_dropped.grow(room)?;
            self.dropout = Some((dropout, 0..identities.len(), positions));
        }
        Ok(())
    }

    pub(crate) fn over(&mut self, rows: &Range<usize>) {
        if let Some((_, over, _)) = &mut self.dropout {
            *over = rows.clone();
        }
    }

    fn drop_entries(
        &self,
        kernels: &Kernels,
        x: Part<Bf16>,
        width: usize,
        coordinates: [usize; 2],
        add: bool,
        to: Part<Bf16>,
    ) -> Result<(), CudaError> {
        let Some((dropout, rows, positions)) = &self.dropout else { return Ok(()) };
        let rows = (self.identities.part(rows.clone()), positions.part(rows.clone()));
        kernels.drop_entries(x, width, *dropout, coordinates, rows, add, to)
    }
}

pub(crate) struct Linear<'a> {
    network: &'a Network,
    adapter: Option<(&'a DeviceAdapter, &'a Branch)>,
    index: usize,
    joint: Joint,
    weight: Range<usize>,
    bias: Option<Range<usize>>,
    inputs: usize,
    outputs: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Gradient {
    /// Gradient buffer, laid out like the trained parameters.
    pub(crate) at: Part<f32>,
    /// True if only an adapter is trained.
    pub(crate) frozen: bool,
}

impl Gradient {
    /// Returns the gradient of a base tensor, or `None` if the base is frozen.
    pub(crate) fn of(self, range: &Range<usize>) -> Option<Part<f32>> {
        (!self.frozen).then(|| self.at.part(range.clone()))
    }
}

impl Linear<'_> {
    fn weight(&self) -> Matrix {
        matrix(self.network.at(&self.weight), self.inputs)
    }

    /// Computes `y = x W^T + b` plus the adapter's output. The biases of queries, keys and values
    /// are left to `Kernels::prepare_qkv`.
    pub(crate) fn forward(
        &self,
        x: Part<Bf16>,
        rows: usize,
        y: Part<Bf16>,
        low: &Low,
    ) -> Result<(), CudaError> {
        let shape = [rows, self.inputs, self.outputs];
        let operands = [matrix(x, self.inputs), self.weight().t()];
        multiply(self.network.driver(), operands, narrow(y, self.outputs), shape, Accumulate::Set, 1.0)?;
        self.add_adapter(x, rows, low, &|columns| narrow(y.part(columns.start..y.len), self.outputs))?;
        match &self.bias {
            Some(bias) if self.joint != Joint::Qkv => {
                self.network.kernels.add_bias(self.network.at(bias), rows, y)
            }
            _ => Ok(()),
        }
    }

    /// Adds `x W^T + b` and the adapter's output to the residual stream `y`.
    pub(crate) fn add(&self, x: Part<Bf16>, rows: usize, y: Part<f32>, low: &Low) -> Result<(), CudaError> {
        let shape = [rows, self.inputs, self.outputs];
        let operands = [matrix(x, self.inputs), self.weight().t()];
        multiply(self.network.driver(), operands, wide(y, self.outputs), shape, Accumulate::Add, 1.0)?;
        self.add_adapter(x, rows, low, &|columns| wide(y.part(columns.start..y.len), self.outputs))?;
        match &self.bias {
            Some(bias) => self.network.kernels.add_bias_wide(self.network.at(bias), rows, y),
            None => Ok(()),
        }
    }

    /// Adds `s x A^T B^T` to `y`, each module in its own columns.
    fn add_adapter(
        &self,
        x: Part<Bf16>,
        rows: usize,
        low: &Low,
        to: &dyn Fn(&Range<usize>) -> Output,
    ) -> Result<(), CudaError> {
        let Some((adapter, branch)) = self.adapter else { return Ok(()) };
        let (driver, rank, width) = (self.network.driver(), adapter.rank, branch.parts.len() * adapter.rank);
        self.fill_low(x, rows, low)?;
        for (index, part) in branch.parts.iter().enumerate() {
            let from = matrix(low.low.part(index * rank..low.low.len()), width);
            let b = matrix(adapter.weights.part(part.b.clone()), rank);
            let shape = [rows, rank, part.columns.len()];
            multiply(driver, [from, b.t()], to(&part.columns), shape, Accumulate::Add, adapter.scale)?;
        }
        Ok(())
    }

    fn fill_low(&self, x: Part<Bf16>, rows: usize, low: &Low) -> Result<(), CudaError> {
        let Some((adapter, branch)) = self.adapter else { return Ok(()) };
        let width = branch.parts.len() * adapter.rank;
        if low.dropout.is_some() {
            let (driver, rank) = (self.network.driver(), adapter.rank);
            for (index, part) in branch.parts.iter().enumerate() {
                let dropped = low.dropped.part(0..rows * self.inputs);
                let coordinates = [self.index, part.module as usize];
                low.drop_entries(&self.network.kernels, x, self.inputs, coordinates, false, dropped)?;
                let a = matrix(adapter.weights.part(part.a.clone()), self.inputs);
                let to = narrow(low.low.part(index * rank..low.low.len()), width);
                let operands = [matrix(dropped, self.inputs), a.t()];
                multiply(driver, operands, to, [rows, self.inputs, rank], Accumulate::Set, 1.0)?;
            }
            return Ok(());
        }
        let a = matrix(adapter.weights.part(branch.a.clone()), self.inputs);
        let to = narrow(low.low.part(0..rows * width), width);
        let (operands, shape) = ([matrix(x, self.inputs), a.t()], [rows, self.inputs, width]);
        multiply(self.network.driver(), operands, to, shape, Accumulate::Set, 1.0)
    }

    pub(crate) fn backward(
        &self,
        x: Part<Bf16>,
        d_y: Part<Bf16>,
        rows: usize,
        d_x: Part<Bf16>,
        gradient: Gradient,
        low: &Low,
    ) -> Result<(), CudaError> {
        let (driver, kernels) = (self.network.driver(), &self.network.kernels);
        let (d, shape) = (matrix(d_y, self.outputs), [rows, self.outputs, self.inputs]);
        multiply(driver, [d, self.weight()], narrow(d_x, self.inputs), shape, Accumulate::Set, 1.0)?;
        if let Some(to) = gradient.of(&self.weight) {
            let (operands, shape) = ([d.t(), matrix(x, self.inputs)], [self.outputs, rows, self.inputs]);
            multiply(driver, operands, wide(to, self.inputs), shape, Accumulate::Add, 1.0)?;
        }
        self.adapter_backward(x, d_y, rows, d_x, gradient, low)?;
        match self.bias.as_ref().and_then(|bias| gradient.of(bias)) {
            Some(to) => kernels.column_sums_narrow(d_y, rows, self.outputs, to),
            None => Ok(()),
        }
    }

    fn adapter_backward(
        &self,
        x: Part<Bf16>,
        d_y: Part<Bf16>,
        rows: usize,
        d_x: Part<Bf16>,
        gradient: Gradient,
        low: &Low,
    ) -> Result<(), CudaError> {
        let Some((adapter, branch)) = self.adapter else { return Ok(()) };
        let (driver, rank, inputs) = (self.network.driver(), adapter.rank, self.inputs);
        let width = branch.parts.len() * rank;
        self.fill_low(x, rows, low)?;
        for (index, part) in branch.parts.iter().enumerate() {
            let columns = part.columns.len();
            let d = matrix(d_y.part(part.columns.start..d_y.len), self.outputs);
            let from = matrix(low.low.part(index * rank..low.low.len()), width);
            let to = wide(gradient.at.part(part.b.clone()), rank);
            multiply(driver, [d.t(), from], to, [columns, rows, rank], Accumulate::Add, adapter.scale)?;
            let b = matrix(adapter.weights.part(part.b.clone()), rank);
            let to = narrow(low.d_low.part(index * rank..low.d_low.len()), width);
            multiply(driver, [d, b], to, [rows, columns, rank], Accumulate::Set, adapter.scale)?;
        }
        if low.dropout.is_some() {
            for (index, part) in branch.parts.iter().enumerate() {
                let (dropped, d_dropped) =
                    (low.dropped.part(0..rows * inputs), low.d_dropped.part(0..rows * inputs));
                let coordinates = [self.index, part.module as usize];
                low.drop_entries(&self.network.kernels, x, inputs, coordinates, false, dropped)?;
                let d_low = matrix(low.d_low.part(index * rank..low.d_low.len()), width);
                let to = wide(gradient.at.part(part.a.clone()), inputs);
                multiply(
                    driver,
                    [d_low.t(), matrix(dropped, inputs)],
                    to,
                    [rank, rows, inputs],
                    Accumulate::Add,
                    1.0,
                )?;
                // Dropped entries have a zero gradient; the others are scaled as in forward.
                let a = matrix(adapter.weights.part(part.a.clone()), inputs);
                multiply(
                    driver,
                    [d_low, a],
                    narrow(d_dropped, inputs),
                    [rows, rank, inputs],
                    Accumulate::Set,
                    1.0,
                )?;
                low.drop_entries(&self.network.kernels, d_dropped, inputs, coordinates, true, d_x)?;
            }
            return Ok(());
        }
        let d_low = matrix(low.d_low.part(0..rows * width), width);
        let to = wide(gradient.at.part(branch.a.clone()), inputs);
        multiply(driver, [d_low.t(), matrix(x, inputs)], to, [width, rows, inputs], Accumulate::Add, 1.0)?;
        let a = matrix(adapter.weights.part(branch.a.clone()), inputs);
        multiply(driver, [d_low, a], narrow(d_x, inputs), [rows, width, inputs], Accumulate::Add, 1.0)
    }
}
