//! Python's libraries read the file of a trained tokenizer with the same results.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;

use turnwise_text::{Tokenizer, TokenizerConfig};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizer").join(name)
}

fn trained() -> Tokenizer {
    let texts = [
        "You are in the middle of a room. You see a shelf 1, a shelf 2, and a fridge 1.\n<act> go to shelf 1<end>",
        "You arrive at shelf 1. On the shelf 1, you see a mug 1, and a pan 2.\n<act> take mug 1 from shelf 1<end>",
        "You arrive at fridge 1. The fridge 1 is closed.\n<act> open fridge 1<end> Nothing happens.\n",
        "Don't look at this\tstring, it's 3.14 é.",
    ];
    let config = TokenizerConfig {
        phrases: ["You arrive at", ", and a", "Nothing happens.", "[x] (y|z)\\", "line\nbreak"]
            .map(String::from)
            .to_vec(),
        max_pieces: 40,
        special_tokens: ["<act>", "<end>"].map(String::from).to_vec(),
        ..TokenizerConfig::default()
    };
    Tokenizer::train(texts.into_iter(), &config).unwrap()
}

#[test]
fn a_trained_tokenizer_is_saved_into_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new/model");
    trained().save_folder(&new).unwrap();
    assert_eq!(Tokenizer::load_folder(&new).unwrap().to_json().unwrap(), trained().to_json().unwrap());
}

#[test]
fn python_reads_the_same_ids() {
    let tokenizer = trained();
    if std::env::var_os("TURNWISE_WRITE_GOLDEN").is_some() {
        tokenizer.save(&golden("tokenizer.json")).unwrap();
        return;
    }
    let file = std::fs::read_to_string(golden("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.to_json().unwrap(), file, "the file changed: make the golden ids again");
    let texts: Vec<String> = serde_json::from_slice(&std::fs::read(golden("texts.json")).unwrap()).unwrap();
    let ids: Vec<Vec<u32>> = serde_json::from_slice(&std::fs::read(golden("ids.json")).unwrap()).unwrap();
    assert_eq!(texts.len(), ids.len());
    for (text, ids) in texts.iter().zip(&ids) {
        assert_eq!(&tokenizer.encode(text), ids, "{text:?}");
        assert_eq!(&tokenizer.decode(ids), text);
        assert_ne!(&tokenizer.encode(&format!("{text} ")), ids);
    }
}
