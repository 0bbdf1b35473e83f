use std::fs;

use super::tensors::of;
use super::writer::{Tensor, Value, write};
use super::*;
use crate::cpu::decoder::tests::{llama, parameters, qwen3};
use crate::{Family, ModelConfig, RopeScaling};

fn tokenizer(pattern: &str) -> Tokenizer {
    let json = serde_json::json!({
        "version": "1.0",
        "added_tokens": [
            {"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 4, "content": "word", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false},
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    });
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn encoded(tensor: &Tensor<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    (tensor.encode)(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, tensor.bytes, "{}", tensor.name);
    bytes
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(2).map(|two| half::f16::from_le_bytes([two[0], two[1]]).to_f32()).collect()
}

#[test]
fn the_container_has_its_numbers_at_aligned_places() {
    let tensor = |name: &str, byte: u8, count: usize| Tensor {
        name: name.to_owned(),
        shape: vec![count, 1],
        kind: 24,
        bytes: count as u64,
        encode: Box::new(move |out| out.write_all(&vec![byte; count])),
    };
    let mut file = Vec::new();
    write(&mut file, &[("key".to_owned(), Value::Bool(true))], &[tensor("one", 7, 33), tensor("two", 9, 5)])
        .unwrap();
    let expected_head =
        [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &2_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    assert!(file.starts_with(&expected_head));
    assert_eq!(file.len() % 32, 0);
    let data = &file[file.len() - 96..];
    assert!(
        data[..33] == [7; 33] && data[33..64] == [0; 31] && data[64..69] == [9; 5] && data[69..] == [0; 27]
    );
    let second = file.windows(3).position(|window| window == b"two").unwrap() + 3;
    // Innermost dimension first; the second tensor starts 64 bytes after the first.
    let place = [
        &2_u32.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &5_u64.to_le_bytes(),
        &24_u32.to_le_bytes(),
        &64_u64.to_le_bytes(),
    ]
    .concat();
    assert_eq!(file[second..second + place.len()], place);
}

#[test]
fn rows_of_llamas_queries_are_interleaved_and_those_of_qwen3_are_not() {
    for (config, interleaved) in [(llama(), true), (qwen3(4, false), false)] {
        let parameters: Parameters<f32> = parameters(&config, 1).cast();
        let found = of(&parameters, GgufType::F16).unwrap();
        let written =
            halves(&encoded(found.iter().find(|tensor| tensor.name == "blk.0.attn_q.weight").unwrap()));
        let original = parameters.tensor("model.layers.0.self_attn.q_proj.weight").unwrap();
        let (width, head) = (config.hidden_size, config.head_dim);
        assert_eq!(head, 4);
        // Rotary pairs, half a head of four apart, become neighbours.
        let order = if interleaved { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        for place in 0..config.num_attention_heads * head {
            let from = place / 4 * 4 + order[place % 4];
            for (a, b) in written[place * width..][..width].iter().zip(&original[from * width..]) {
                assert!((a - b).abs() <= 1e-3 * b.abs(), "row {place}: {a} and {b}");
            }
        }
    }
}

#[test]
fn blocks_of_eight_bits_are_within_their_rounding() {
    let config = ModelConfig { hidden_size: 64, head_dim: 16, ..qwen3(6, false) };
    let parameters: Parameters<f32> = parameters(&config, 1).cast();
    let found = of(&parameters, GgufType::Q8_0).unwrap();
    let tensor = found.iter().find(|tensor| tensor.name == "blk.0.ffn_gate.weight").unwrap();
    let original = parameters.tensor("model.layers.0.mlp.gate_proj.weight").unwrap();
    assert_eq!(tensor.kind, 8);
    for (block, values) in encoded(tensor).chunks(34).zip(original.chunks(32)) {
        let scale = halves(&block[..2])[0];
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        assert!(block[2..].iter().any(|&byte| byte.cast_signed().unsigned_abs() == 127));
        for (&byte, value) in block[2..].iter().zip(values) {
            let allowed = most * (0.5 / 127.0 + 2_f32.powi(-11)) * 1.0001;
            assert!(
                (scale * f32::from(byte.cast_signed()) - value).abs() <= allowed,
                "{value} as {byte} x {scale}"
            );
        }
    }
    let narrow = ModelConfig { intermediate_size: 6, ..config };
    let parameters: Parameters<f32> = self::parameters(&narrow, 1).cast();
    let found = of(&parameters, GgufType::Q8_0).unwrap();
    assert_eq!(found.iter().find(|tensor| tensor.name == "blk.0.ffn_down.weight").unwrap().kind, 1);
}

#[test]
fn llama_3s_factors_are_those_of_its_frequencies() {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64,
    };
    let config = ModelConfig { rope_scaling: scaling, rope_theta: 10_000.0, ..llama() };
    let parameters: Parameters<f32> = parameters(&config, 1).cast();
    let found = of(&parameters, GgufType::F16).unwrap();
    let factors: Vec<f32> =
        encoded(&found[0]).chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!((found[0].name.as_str(), factors.len()), ("rope_freqs.weight", config.head_dim / 2));
    assert!(factors[0] == 1.0 && factors.iter().all(|factor| (1.0..=8.0).contains(factor)), "{factors:?}");
    assert!(factors.len() < 2 || factors.last() > factors.first(), "{factors:?}");
}

#[test]
fn tokens_have_their_kinds_and_rows_without_a_token_are_unused() {
    let config = ModelConfig { vocab_size: 6, ..qwen3(6, false) };
    let found = vocabulary::of(&config, &tokenizer(QWEN2)).unwrap();
    let value = |key: &str| found.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
    let texts = ["a", "b", "ab", "<end>", "word", "[PAD5]"].map(str::to_owned).to_vec();
    assert_eq!(value("tokenizer.ggml.tokens"), Some(Value::Texts(texts)));
    assert_eq!(value("tokenizer.ggml.token_type"), Some(Value::Integers(vec![1, 1, 1, 3, 4, 5])));
    assert_eq!(value("tokenizer.ggml.merges"), Some(Value::Texts(vec!["a b".to_owned()])));
    assert_eq!(value("tokenizer.ggml.pre"), Some(Value::Text("qwen2".to_owned())));
}

#[test]
fn what_llama_cpp_would_run_wrongly_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let attempt = |config: &ModelConfig, tokenizer: &Tokenizer, spoil: Option<f32>| {
        let mut parameters: Parameters<f32> = parameters(config, 1).cast();
        if let Some(value) = spoil {
            parameters.data[0] = value;
        }
        write_gguf(&parameters, tokenizer, "small", &path, GgufType::F16).map_err(|error| error.to_string())
    };
    let good = ModelConfig { vocab_size: 6, ..qwen3(6, false) };
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        attention_factor: 1.3,
        beta_fast: 16.0,
        beta_slow: 2.0,
        original_max_position_embeddings: 128,
        truncate: false,
    };
    let with_yarn = ModelConfig { rope_scaling: yarn, ..good.clone() };
    let small = ModelConfig { vocab_size: 4, ..good.clone() };
    for (outcome, expected) in [
        (attempt(&with_yarn, &tokenizer(QWEN2), None), "scaled by YaRN"),
        (attempt(&small, &tokenizer(QWEN2), None), "token \"word\" has no row in the embedding of 4"),
        (attempt(&good, &tokenizer(r"\s+"), None), "it is not byte-level BPE with the splitting of"),
        (
            attempt(&good, &tokenizer(QWEN2), Some(1e5)),
            "has the number 100000, which half precision does not hold",
        ),
        (attempt(&good, &tokenizer(QWEN2), Some(f32::NAN)), "has the number NaN"),
    ] {
        let error = outcome.unwrap_err();
        assert!(error.contains("model.gguf: ") && error.contains(expected), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{expected}: a file was left");
    }
    assert!(
        settings::of(&ModelConfig { model_type: Family::Qwen25Vl, ..good.clone() }, "x", GgufType::F16)
            .is_err()
    );
    attempt(&good, &tokenizer(QWEN2), None).unwrap();
    assert!(fs::read(&path).unwrap().starts_with(b"GGUF\x03\0\0\0"));
}
