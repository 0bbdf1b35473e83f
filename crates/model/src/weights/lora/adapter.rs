use std::ops::Range;

use turnwise_core::Seed;

use super::{Joint, LoraConfig, Module};
use crate::ops::linear::{Accumulate, View, ViewMut, matmul};
use crate::weights::TensorList;
use crate::{LayerLayout, ModelConfig, ModelError, Parameters, Real, TensorInfo};

/// Ranges of a module's two matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterPart {
    /// Adapted module.
    pub module: Module,
    /// `A`, `[rank, inputs]`.
    pub a: Range<usize>,
    /// `B`, `[outputs, rank]`.
    pub b: Range<usize>,
    /// The module's columns in the fused product.
    pub columns: Range<usize>,
}

/// Adapters of one fused matrix product. The adapters' `A` matrices are contiguous and form one
/// matrix, `[parts rank, inputs]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// All `A` matrices.
    pub a: Range<usize>,
    /// Adapted modules in column order; may be empty.
    pub parts: Vec<AdapterPart>,
    /// The product's input width.
    pub inputs: usize,
    /// The product's output width.
    pub outputs: usize,
}

/// Ranges of an adapter's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterLayout {
    /// Branches per layer, in the order of [`Joint::ALL`].
    pub layers: Vec<[Branch; 4]>,
    /// A critic's value head: `[hidden]` weights and one bias.
    pub value: Option<Range<usize>>,
    /// Tensors in buffer order, with PEFT's names.
    pub tensors: Vec<TensorInfo>,
    /// Buffer length.
    pub len: usize,
}

impl AdapterLayout {
    /// Returns the layout for a model, with a value head for a critic.
    ///
    /// # Errors
    /// Fails if the settings are invalid.
    pub fn new(model: &ModelConfig, config: &LoraConfig, critic: bool) -> Result<Self, ModelError> {
        config.check()?;
        let modules = config.modules()?;
        let mut builder = TensorList::default();
        let layers = (0..model.num_hidden_layers)
            .map(|layer| {
                Joint::ALL.map(|joint| branch(&mut builder, model, config.rank, layer, (joint, &modules)))
            })
            .collect();
        let value = critic.then(|| {
            let weight = builder.add("score.weight", &[1, model.hidden_size]);
            weight.start..builder.add("score.bias", &[1]).end
        });
        Ok(Self { layers, value, tensors: builder.tensors, len: builder.len })
    }

    /// Returns a module's ranges, or `None` if it has no adapter.
    pub fn part(&self, layer: usize, module: Module) -> Option<&AdapterPart> {
        self.layers.get(layer)?.iter().flat_map(|branch| &branch.parts).find(|part| part.module == module)
    }
}

fn branch(
    builder: &mut TensorList,
    model: &ModelConfig,
    rank: usize,
    layer: usize,
    (joint, adapted): (Joint, &[Module]),
) -> Branch {
    let name = |module: Module, matrix: &str| {
        // PEFT's names contain `language_model` if there is a vision tower.
        let decoder = if model.vision.is_some() { "model.language_model" } else { "model" };
        format!("base_model.model.{decoder}.layers.{layer}.{}.lora_{matrix}.weight", module.path())
    };
    let inputs = joint.modules()[0].inputs(model);
    let start = builder.len;
    let mut parts = Vec::new();
    let mut column = 0;
    for &module in joint.modules() {
        let columns = column..column + module.outputs(model);
        column = columns.end;
        if adapted.contains(&module) {
            let a = builder.add(&name(module, "A"), &[rank, inputs]);
            parts.push(AdapterPart { module, a, b: 0..0, columns });
        }
    }
    let a = start..builder.len;
    for part in &mut parts {
        part.b = builder.add(&name(part.module, "B"), &[part.columns.len(), rank]);
    }
    Branch { a, parts, inputs, outputs: column }
}

/// An adapter's settings, layout and weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter<T> {
    /// Settings with `all-linear` expanded.
    pub config: LoraConfig,
    /// Base model's architecture.
    pub model: ModelConfig,
    /// Ranges of the tensors.
    pub layout: AdapterLayout,
    /// Flat weights.
    pub data: Vec<T>,
}

impl Adapter<f32> {
    /// Returns a new adapter, initialized like PEFT's (`kaiming_uniform_(A, a = sqrt(5))`): `A`
    /// uniform in `±1 / sqrt(inputs)`, `B` zero.
    ///
    /// # Errors
    /// Fails like [`LoraConfig::check`].
    pub fn init(model: &ModelConfig, config: &LoraConfig, seed: Seed) -> Result<Self, ModelError> {
        let mut adapter = Self::zeros(model, config)?;
        let mut rng = seed.rng();
        for tensor in adapter.layout.tensors.iter().filter(|tensor| tensor.name.ends_with("lora_A.weight")) {
            let bound = 1.0 / (tensor.shape[1] as f64).sqrt();
            for value in &mut adapter.data[tensor.range.clone()] {
                *value = ((2.0 * rng.uniform() - 1.0) * bound) as f32;
            }
        }
        Ok(adapter)
    }
}

impl<T: Real> Adapter<T> {
    /// Returns an adapter of zeros.
    ///
    /// # Errors
    /// Fails like [`LoraConfig::check`].
    pub fn zeros(model: &ModelConfig, config: &LoraConfig) -> Result<Self, ModelError> {
        Self::with_layout(model, config, AdapterLayout::new(model, config, false)?)
    }

    /// Returns a critic's adapter of zeros, with a full (not low-rank) value head.
    ///
    /// # Errors
    /// Fails like [`LoraConfig::check`].
    pub fn critic(model: &ModelConfig, config: &LoraConfig) -> Result<Self, ModelError> {
        Self::with_layout(model, config, AdapterLayout::new(model, config, true)?)
    }

    fn with_layout(
        model: &ModelConfig,
        config: &LoraConfig,
        layout: AdapterLayout,
    ) -> Result<Self, ModelError> {
        let data = vec![T::ZERO; layout.len];
        Ok(Self { config: config.spelled_out()?, model: model.clone(), layout, data })
    }

    /// Returns a critic's adapter with these weights and a zero value head.
    ///
    /// # Errors
    /// Fails like [`LoraConfig::check`] if [`Adapter::config`] was changed.
    pub fn to_critic(&self) -> Result<Self, ModelError> {
        let mut critic = Self::critic(&self.model, &self.config)?;
        let end = critic.layout.value.as_ref().map_or(critic.layout.len, |value| value.start);
        critic.data[..end].copy_from_slice(&self.data[..end]);
        Ok(critic)
    }

    /// Returns true if every `B` is zero, so the adapter has no effect.
    pub fn is_identity(&self) -> bool {
        let mut parts = self.layout.layers.iter().flatten().flat_map(|branch| &branch.parts);
        parts.all(|part| self.data[part.b.clone()].iter().all(|&value| value == T::ZERO))
    }

    /// Converts the weights' type.
    pub fn cast<U: Real>(&self) -> Adapter<U> {
        Adapter {
            config: self.config.clone(),
            model: self.model.clone(),
            layout: self.layout.clone(),
            data: self.data.iter().map(|value| U::from_f64(value.to_f64())).collect(),
        }
    }

    /// Returns a tensor by its name in PEFT's file.
    pub fn tensor(&self, name: &str) -> Option<&[T]> {
        let info = self.layout.tensors.iter().find(|info| info.name == name)?;
        self.data.get(info.range.clone())
    }

    /// Returns a mutable tensor by its name in PEFT's file.
    pub fn tensor_mut(&mut self, name: &str) -> Option<&mut [T]> {
        let info = self.layout.tensors.iter().find(|info| info.name == name)?;
        self.data.get_mut(info.range.clone())
    }

    /// Adds `s B A` to an adapted module's weight, `[outputs, inputs]`, which takes `2 r`
    /// operations per weight.
    pub(crate) fn add_to(&self, layer: usize, module: Module, weight: &mut [T]) {
        let Some(part) = self.layout.part(layer, module) else { return };
        let (inputs, outputs, rank) = (module.inputs(&self.model), part.columns.len(), self.config.rank);
        let b = View::new(&self.data[part.b.clone()], outputs, rank);
        let a = View::new(&self.data[part.a.clone()], rank, inputs);
        matmul(
            ViewMut::new(weight, outputs, inputs),
            b,
            a,
            Accumulate::Add,
            T::from_f64(self.config.scale()),
        );
    }

    pub(crate) fn merged(&self, layer: usize, module: Module, weight: &[T]) -> Option<Vec<T>> {
        self.layout.part(layer, module)?;
        let mut merged = weight.to_vec();
        self.add_to(layer, module, &mut merged);
        Some(merged)
    }

    /// Merges the adapter, except its value head, into its base weights.
    ///
    /// # Errors
    /// Fails if the adapter was made for another architecture.
    pub fn merge_into(&self, parameters: &mut Parameters<T>) -> Result<(), ModelError> {
        self.check_base(&parameters.config)?;
        let layers: Vec<LayerLayout> = parameters.layout.layers.clone();
        for (index, layer) in layers.iter().enumerate() {
            for module in Module::ALL {
                self.add_to(index, module, &mut parameters.data[module.weight(layer)]);
            }
        }
        Ok(())
    }

    pub(crate) fn check_base(&self, model: &ModelConfig) -> Result<(), ModelError> {
        let same = model.num_hidden_layers == self.model.num_hidden_layers
            && model.hidden_size == self.model.hidden_size
            && Module::ALL.into_iter().all(|module| {
                module.inputs(model) == module.inputs(&self.model)
                    && module.outputs(model) == module.outputs(&self.model)
            });
        if same {
            return Ok(());
        }
        Err(ModelError::Setting {
            key: "adapter".into(),
            reason: format!(
                "was made for {} layers of width {}, the model has {} of width {} or other projections: they do \
                 not belong together",
                self.model.num_hidden_layers,
                self.model.hidden_size,
                model.num_hidden_layers,
                model.hidden_size
            ),
        })
    }
}
