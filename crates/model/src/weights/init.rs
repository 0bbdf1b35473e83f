use turnwise_core::Seed;

use crate::{ModelConfig, ModelError, ParameterLayout, Parameters};

impl Parameters<f32> {
    /// Returns random weights: matrices are normal with standard deviation `initializer_range`,
    /// norms are one and biases zero. Each layer's two projections into the residual stream are
    /// scaled by `1 / sqrt(2 layers)` as in GPT-2 (Radford et al. 2019), unlike in `transformers`'
    /// Qwen2.
    ///
    /// # Errors
    /// Fails like [`ModelConfig::check`].
    pub fn init(config: ModelConfig, seed: Seed) -> Result<Self, ModelError> {
        config.check()?;
        let layout = ParameterLayout::new(&config);
        let mut data = vec![0.0; layout.len];
        let mut rng = seed.rng();
        let residual = 1.0 / (2.0 * config.num_hidden_layers as f64).sqrt();
        for tensor in &layout.tensors {
            let values = &mut data[tensor.range.clone()];
            // The only vectors named `weight` are norms.
            if !tensor.decays && tensor.name.ends_with(".weight") {
                values.fill(1.0);
            } else if tensor.decays {
                let writes =
                    tensor.name.ends_with("o_proj.weight") || tensor.name.ends_with("down_proj.weight");
                let deviation = config.initializer_range * if writes { residual } else { 1.0 };
                for value in values {
                    *value = (rng.normal() * deviation) as f32;
                }
            }
        }
        Ok(Self { config, layout, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::decoder::tests::config;
    use turnwise_core::Purpose;

    #[test]
    fn every_kind_of_tensor_starts_as_it_should() {
        let config = ModelConfig { vocab_size: 500, ..config(4, 2, false) };
        let seed = Seed::derive(3, Purpose::Init, &[]);
        let parameters = Parameters::init(config.clone(), seed).unwrap();
        assert_eq!(parameters, Parameters::init(config.clone(), seed).unwrap());
        let other = Parameters::init(config.clone(), Seed::derive(4, Purpose::Init, &[])).unwrap();
        assert_ne!(parameters.data, other.data);
        let deviation = |name: &str| {
            let values = parameters.tensor(name).unwrap();
            (values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
        };
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.1;
        assert!(close(deviation("model.embed_tokens.weight"), 0.02));
        assert!(close(deviation("lm_head.weight"), 0.02));
        assert!(close(deviation("model.layers.1.mlp.down_proj.weight"), 0.02 / 2.0));
        assert!(parameters.tensor("model.norm.weight").unwrap().iter().all(|&x| x == 1.0));
        assert!(parameters.tensor("model.layers.0.self_attn.k_proj.bias").unwrap().iter().all(|&x| x == 0.0));
        assert!(Parameters::init(ModelConfig { num_key_value_heads: 3, ..config }, seed).is_err());
    }
}
