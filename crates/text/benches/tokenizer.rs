//! Speed of tokenizers. Run: `cargo bench -p turnwise-text`.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnwise_text::{Tokenizer, TokenizerConfig};

/// Returns observations like those of a household environment.
fn observations() -> Vec<String> {
    let (rooms, things) =
        (["desk", "shelf", "drawer", "sidetable"], ["mug", "book", "pen", "apple", "keychain"]);
    (0..400)
        .map(|index| {
            let (room, thing) = (rooms[index % rooms.len()], things[index % things.len()]);
            format!(
                "You arrive at {room} {}. On the {room} {}, you see a {thing} {}, and a {} {}.",
                index % 9 + 1,
                index % 9 + 1,
                index % 4 + 1,
                things[(index + 2) % things.len()],
                index % 3 + 1
            )
        })
        .collect()
}

fn tokenizer(criterion: &mut Criterion) {
    let texts = observations();
    let config = TokenizerConfig { max_pieces: 300, ..TokenizerConfig::default() };
    let tokenizer = Tokenizer::train(texts.iter().map(String::as_str), &config).expect("texts to train on");
    let page = texts.join("\n");
    let ids = tokenizer.encode(&page);
    let mut group = criterion.benchmark_group("tokenizer");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| black_box(tokenizer.encode(black_box(&page)))));
    group.bench_function("decode", |bencher| bencher.iter(|| black_box(tokenizer.decode(black_box(&ids)))));
    group.bench_function("train", |bencher| {
        bencher
            .iter(|| Tokenizer::train(texts.iter().map(String::as_str), &config).expect("texts to train on"));
    });
    group.finish();
}

criterion_group!(benches, tokenizer);
criterion_main!(benches);
