//! Reading a model takes little more memory than the model itself.
//!
//! A separate program with one test, because the peak is that of the whole process.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod resident;

use std::fs;
use std::path::Path;

use turnwise_model::{ModelConfig, Parameters, SaveOptions, WeightType, load_model, save_model_as};

use resident::peak;

fn read_whole(folder: &Path) -> (Vec<u8>, Parameters<f32>) {
    (fs::read(folder.join("model.safetensors")).unwrap(), load_model(folder).unwrap())
}

#[test]
fn a_model_is_read_without_a_second_copy() {
    let config = ModelConfig {
        vocab_size: 20_000,
        hidden_size: 512,
        intermediate_size: 2048,
        num_hidden_layers: 3,
        num_attention_heads: 8,
        num_key_value_heads: 8,
        head_dim: 64,
        max_position_embeddings: 64,
        ..ModelConfig::default()
    };
    let mut parameters = Parameters::<f32>::zeros(config);
    for (index, value) in parameters.data.iter_mut().enumerate() {
        *value = (index % 1000) as f32;
    }
    let size = 4 * parameters.data.len();
    let folder = tempfile::tempdir().unwrap();
    for (dtype, shard_bytes) in
        [(WeightType::F32, usize::MAX), (WeightType::F32, size / 8), (WeightType::Bf16, usize::MAX)]
    {
        let options = SaveOptions { dtype, shard_bytes };
        let Some((saving, ())) = peak(|| save_model_as(&parameters, folder.path(), options).unwrap()) else {
            eprintln!("skipped: the peak of a process's memory cannot be reset here");
            return;
        };
        // At most one tensor at a time is rounded.
        assert!(saving < size / 2, "{options:?}: {saving} bytes beside {size} while saving");
        let (loading, loaded) = peak(|| load_model(folder.path()).unwrap()).unwrap();
        assert!(loading >= size, "{loading} of {size}: the measurement does not see the weights");
        let beside = loading - size;
        assert!(beside < size / 4, "{options:?}: {beside} bytes beside {size} while loading");
        assert_eq!(loaded.data.len(), parameters.data.len());
    }
    save_model_as(&parameters, folder.path(), SaveOptions::default()).unwrap();
    let (loading, _kept) = peak(|| read_whole(folder.path())).unwrap();
    assert!(loading > size + size / 2, "{loading} of {size}");
}
