//! Configs of real models, if `TURNWISE_DATA` has them: each gives a layout without allocating
//! weights, or is rejected with the supported values.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::PathBuf;

use turnwise_model::{Family, ModelConfig, ParameterLayout, RopeScaling, read_config};

/// Parameters as `transformers` counts them (`sum(p.numel() for p in model.parameters())` on the
/// meta device).
const MODELS: [(&str, Family, usize); 12] = [
    ("Qwen2.5-0.5B-Instruct", Family::Qwen2, 494_032_768),
    ("Qwen2.5-3B", Family::Qwen2, 3_085_938_688),
    ("Qwen2.5-7B", Family::Qwen2, 7_615_616_512),
    ("Qwen2.5-14B", Family::Qwen2, 14_770_033_664),
    ("Qwen2.5-32B", Family::Qwen2, 32_763_876_352),
    ("Qwen3-4B", Family::Qwen3, 4_022_468_096),
    ("Qwen3-8B", Family::Qwen3, 8_190_735_360),
    ("Qwen3-14B", Family::Qwen3, 14_768_307_200),
    ("Qwen3-32B", Family::Qwen3, 32_762_123_264),
    ("Qwen2.5-VL-3B-Instruct", Family::Qwen25Vl, 3_754_622_976),
    ("Llama-3.1-8B", Family::Llama, 8_030_261_248),
    ("Llama-3.2-3B", Family::Llama, 3_212_749_824),
];

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_DATA").map(|data| PathBuf::from(data).join("hf_configs"));
    if folder.is_none() {
        eprintln!("skipped: TURNWISE_DATA not set");
    }
    folder
}

#[test]
fn dense_decoders_build_with_the_known_number_of_parameters() {
    let Some(folder) = folder() else { return };
    for (name, family, parameters) in MODELS {
        let config = read_config(&folder.join(format!("{name}.config.json"))).unwrap();
        assert_eq!(config.model_type, family, "{name}");
        let layout = ParameterLayout::new(&config);
        assert_eq!(layout.len, parameters, "{name}");
        assert_eq!(layout.layers.len(), config.num_hidden_layers);
        assert_eq!(config.rotary().frequencies.len(), config.head_dim / 2);
        let other = ModelConfig { vocab_size: config.vocab_size - 1, ..config.clone() };
        assert_ne!(ParameterLayout::new(&other).len, parameters, "{name}");
    }
}

#[test]
fn what_sets_a_model_apart_is_read() {
    let Some(folder) = folder() else { return };
    let read = |name: &str| read_config(&folder.join(format!("{name}.config.json"))).unwrap();
    let small = read("Qwen3-4B");
    assert_eq!((small.head_dim, small.query_width(), small.hidden_size), (128, 4096, 2560));
    let llama = read("Llama-3.2-3B");
    let RopeScaling::Llama3 { factor, original_max_position_embeddings, .. } = llama.rope_scaling else {
        panic!("{:?}", llama.rope_scaling)
    };
    assert_eq!((factor, original_max_position_embeddings, llama.head_dim), (32.0, 8192, 128));
    assert_eq!((llama.rope_theta, llama.rms_norm_eps), (500_000.0, 1e-5));
    // The lowest frequency is divided by the factor, the highest is not.
    let (plain, scaled) =
        (ModelConfig { rope_scaling: RopeScaling::None, ..llama.clone() }.rotary(), llama.rotary());
    assert_eq!(scaled.frequencies[0], plain.frequencies[0]);
    let ratio = plain.frequencies[63] / scaled.frequencies[63];
    assert!((ratio - 32.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn other_models_are_refused_with_what_is_supported() {
    let Some(folder) = folder() else { return };
    let error = read_config(&folder.join("Qwen3-30B-A3B.config.json")).unwrap_err().to_string();
    let expected = "`qwen3_moe` (a mixture of experts) is not supported";
    assert!(error.contains(expected) && error.contains("qwen2, qwen3, llama"), "{error}");
    assert!(error.contains("Qwen3-30B-A3B.config.json"), "{error}");
    let mut known: Vec<&str> = MODELS.iter().map(|(name, ..)| *name).collect();
    known.push("Qwen3-30B-A3B");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".config.json") {
            assert!(known.contains(&name), "{name} is new: give it a line here");
        }
    }
}
