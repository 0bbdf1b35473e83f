use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const TEXTS: [&str; 4] = [
    "You are in the middle of a room. You see a shelf 1, a shelf 2, and a fridge 1.\n<act> go to shelf 1<end>",
    "You arrive at shelf 1. On the shelf 1, you see a mug 1, and a pan 2.\n<act> take mug 1 from shelf 1<end>",
    "You arrive at fridge 1. The fridge 1 is closed.\n<act> open fridge 1<end> Nothing happens.\n\n",
    "You arrive at shelf 2. On the shelf 2, you see nothing.\n<act> go to fridge 1<end>",
];

fn config(max_pieces: usize) -> TokenizerConfig {
    TokenizerConfig {
        phrases: ["You arrive at", ", and a", "is closed.", "never seen", "<a>", "next >"]
            .map(String::from)
            .to_vec(),
        max_pieces,
        special_tokens: ["<act>", "<end>", "<end>>"].map(String::from).to_vec(),
        ..TokenizerConfig::default()
    }
}

fn trained() -> Tokenizer {
    Tokenizer::train(TEXTS.into_iter(), &config(20)).unwrap()
}

#[test]
fn pieces_phrases_and_markers_are_single_tokens() {
    let tokenizer = trained();
    let tokens = |text: &str| -> Vec<String> {
        tokenizer.encode(text).iter().map(|&id| tokenizer.decode(&[id])).collect()
    };
    assert_eq!(
        tokens("You arrive at shelf 1.\nnever seen, and a zebra 7<end>"),
        [
            "You arrive at",
            " shelf 1",
            ".",
            "\n",
            "never seen",
            ", and a",
            " ",
            "z",
            "e",
            "b",
            "r",
            "a",
            " ",
            "7",
            "<end>"
        ]
    );
    assert_eq!(tokens("<end>>"), ["<end>>"]);
    assert_eq!(tokenizer.token_id("<act>"), Some(256));
    assert_eq!(tokenizer.vocab_size(), 256 + 3 + 20);
    assert!(tokenizer.fast.is_some());
}

#[test]
fn training_is_deterministic_and_survives_the_file() {
    let tokenizer = trained();
    let reversed = Tokenizer::train(TEXTS.into_iter().rev(), &config(20)).unwrap();
    assert_eq!(tokenizer.to_json().unwrap(), reversed.to_json().unwrap());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    tokenizer.save(&path).unwrap();
    let again = Tokenizer::load(&path).unwrap();
    assert_eq!(again.to_json().unwrap(), tokenizer.to_json().unwrap());
    assert_eq!(again.encode(TEXTS[1]), tokenizer.encode(TEXTS[1]));
    let other = Tokenizer::train(TEXTS.into_iter().take(2), &config(20)).unwrap();
    assert_ne!(other.to_json().unwrap(), tokenizer.to_json().unwrap());
}

#[test]
fn a_file_of_an_earlier_version_is_read_and_cuts_the_same() {
    let tokenizer = trained();
    let now = tokenizer.to_json().unwrap();
    // The regex of earlier versions, escaped for JSON.
    let then = now.replace(r"\\x3C", r"\\<").replace(r"\\x3E", r"\\>");
    assert!(then != now && then.contains(r"\\<a\\>|"));
    let mut again = Tokenizer::from_json(then.as_bytes()).unwrap();
    assert!(again.fast.is_some());
    assert_eq!(again.to_json().unwrap(), now);
    let texts = ["a <a> b next > c", "<a>", "next >next > a next", "go<a>and a, a b"];
    for fast in [true, false] {
        for text in texts {
            assert_eq!(again.encode(text), tokenizer.encode(text), "{text:?}, fast: {fast}");
        }
        again.fast = None;
    }
    let library = tokenizers::Tokenizer::from_bytes(then).unwrap();
    let ids = |text| library.encode_fast(text, false).unwrap().get_ids().to_vec();
    assert!(texts.iter().any(|text| ids(*text) != tokenizer.encode(text)));
}

#[test]
fn errors_name_the_cause() {
    let mut small = config(3);
    assert!(Tokenizer::train([].into_iter(), &small).unwrap_err().to_string().contains("max_pieces = 3"));
    small = config(10);
    small.special_tokens.push("<act>".into());
    assert!(Tokenizer::train([].into_iter(), &small).unwrap_err().to_string().contains("`<act>`"));
    let missing = Tokenizer::load(Path::new("no-such-folder/tokenizer.json")).unwrap_err();
    assert!(missing.to_string().contains("no-such-folder"));
    let far = trained().to_json().unwrap().replace("\"<act>\": 256", "\"<act>\": 4000000000");
    assert!(Tokenizer::from_json(far.as_bytes()).unwrap_err().to_string().contains("4000000000"));
    assert!(matches!(Tokenizer::from_json(b"{}"), Err(TextError::Tokenizer(_))));
}

fn lacking(unknown: Option<&str>) -> Tokenizer {
    let alphabet = byte_alphabet();
    let mut vocabulary = serde_json::Map::new();
    for (byte, character) in alphabet.iter().enumerate() {
        if ![4, 0xc0].contains(&byte) {
            vocabulary.insert(character.to_string(), json!(vocabulary.len()));
        }
    }
    if let Some(unknown) = unknown {
        vocabulary.insert(unknown.into(), json!(vocabulary.len()));
    }
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    });
    Tokenizer::from_json(file.to_string().as_bytes()).unwrap()
}

#[test]
fn a_byte_without_a_character_is_left_out_or_unknown() {
    let ids = |tokenizer: &Tokenizer, text: &str| -> Vec<Option<u32>> {
        let names: HashMap<u32, u8> =
            (0..=u8::MAX).filter_map(|byte| Some((tokenizer.byte_ids[usize::from(byte)]?, byte))).collect();
        tokenizer.encode(text).iter().map(|id| names.get(id).map(|&byte| u32::from(byte))).collect()
    };
    let plain = lacking(None);
    assert_eq!(plain.missing_bytes(), [4, 0xc0]);
    assert_eq!(ids(&plain, "a\u{4}b"), [Some(97), Some(98)]);
    assert_eq!(plain.decode(&plain.encode("a\u{4}bÄ")), "abÄ");
    let unknown = lacking(Some("<unk>"));
    assert_eq!(ids(&unknown, "a\u{4}b"), [Some(97), None, Some(98)]);
    assert_eq!(unknown.encode("\u{4}"), [unknown.token_id("<unk>").unwrap()]);
    assert!(trained().missing_bytes().is_empty());
}

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<String>(),
        "[ \t\n'a-zA-Z0-9.,<>é]{0,12}",
        proptest::sample::select(vec![
            "You arrive at",
            ", and a",
            " shelf 1",
            "<act>",
            "<end>",
            "<end>>",
            "<en",
            "<a>",
            "next >",
            "<a ",
            "a>",
            "next",
            "\n",
            "\r\n",
            " ",
            "\u{a0}",
            "\u{85}",
            "is closed.",
            " 12",
            " mug",
            "日本",
            "e\u{301}"
        ])
        .prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in text()) {
        let tokenizer = trained();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
    }

    #[test]
    fn the_fast_path_equals_the_library(text in text()) {
        let mut tokenizer = trained();
        let fast = tokenizer.encode(&text);
        tokenizer.fast = None;
        prop_assert_eq!(&fast, &tokenizer.encode(&text));
        prop_assert_eq!(tokenizer.decode(&fast), tokenizer.library.decode(&fast, false).unwrap());
    }

    #[test]
    fn any_ids_decode_as_the_library_does(ids in proptest::collection::vec(0u32..299, 0..20)) {
        let tokenizer = trained();
        prop_assert_eq!(tokenizer.decode(&ids), tokenizer.library.decode(&ids, false).unwrap());
    }
}

/// Compares the library's regex with the fast path: `cargo test --release -- --ignored speed`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut text = String::new();
    for index in 0..20_000 {
        let _ = write!(
            text,
            "You arrive at shelf {}. On it, you see a mug {index}, and a pan 2.\n<act> x<end>",
            index % 7
        );
    }
    let mut tokenizer = trained();
    for path in ["fast", "library"] {
        let start = std::time::Instant::now();
        let count = tokenizer.encode(&text).len();
        let seconds = start.elapsed().as_secs_f64();
        println!("{path}: {count} tokens, {:.1} MB/s", text.len() as f64 / seconds / 1e6);
        tokenizer.fast = None;
    }
}

/// A normalizer disables the fast encoder.
fn with_keys(keys: &[(&str, serde_json::Value)]) -> Tokenizer {
    let mut file: serde_json::Value = serde_json::from_str(&trained().to_json().unwrap()).unwrap();
    file["normalizer"] = json!({"type": "NFC"});
    for (key, value) in keys {
        file[*key] = value.clone();
    }
    let tokenizer = Tokenizer::from_json(file.to_string().as_bytes()).unwrap();
    assert!(tokenizer.fast.is_none());
    tokenizer
}

#[test]
fn settings_of_batches_in_the_file_cut_and_pad_nothing() {
    let plain = with_keys(&[]);
    let truncation = json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    let padding = json!({
        "strategy": {"Fixed": 100}, "direction": "Left", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<end>",
    });
    let left_behind = with_keys(&[("truncation", truncation), ("padding", padding)]);
    for text in TEXTS {
        assert!(plain.encode(text).len() > 4);
        assert_eq!(left_behind.encode(text), plain.encode(text));
    }
    assert_eq!(left_behind.to_json().unwrap(), plain.to_json().unwrap());
}

#[test]
fn the_token_before_every_text_is_that_of_the_post_processor() {
    assert!(trained().text_prefix().is_empty() && with_keys(&[]).text_prefix().is_empty());
    let act = trained().token_id("<act>").unwrap();
    let template = |single: serde_json::Value| {
        let ids = json!({"<act>": {"id": "<act>", "ids": [act], "tokens": ["<act>"]}});
        let pair = json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]);
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids})
    };
    let special = json!({"SpecialToken": {"id": "<act>", "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let before = with_keys(&[("post_processor", template(json!([special, text])))]);
    assert_eq!(before.text_prefix(), [act]);
    assert!(!before.encode("a").contains(&act), "what goes on in the middle of a text gets none");
    let after = with_keys(&[("post_processor", template(json!([text, special])))]);
    assert!(after.text_prefix().is_empty());
}

#[test]
fn a_file_is_saved_whole_in_place_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, "an older one").unwrap();
    let kept = std::fs::File::open(&path).unwrap();
    trained().save(&path).unwrap();
    assert_eq!(Tokenizer::load(&path).unwrap().to_json().unwrap(), trained().to_json().unwrap());
    // The old file stays readable while open.
    assert_eq!(std::io::read_to_string(kept).unwrap(), "an older one");
    let error = trained().save(&folder.path().join("none/tokenizer.json")).unwrap_err().to_string();
    assert!(error.contains("none/tokenizer.json"), "{error}");
}
