use pulp::Arch;

use super::*;
use crate::backend::Row;
use crate::ops::attention::Heads;

fn number(index: usize) -> f32 {
    ((index * 7919 + 13) % 1000) as f32 / 500.0 - 1.0
}

fn numbers(count: usize, factor: usize) -> Vec<f32> {
    (0..count).map(|index| number(index * factor + factor)).collect()
}

fn write(cache: &mut Cache, sequence: usize, positions: Range<usize>, text: usize) {
    let row = cache.heads().keys * cache.heads().width;
    for position in positions {
        cache.claim(sequence, position);
        for layer in 0..2 {
            let at = (text * 100 + position) * row + layer * 7;
            let key: Vec<f32> = (0..row).map(|index| number(at + index)).collect();
            let value: Vec<f32> = (0..row).map(|index| number((at + index) * 3 + 1)).collect();
            cache.write(sequence, layer, position, &key, &value);
        }
    }
}

fn attend(arch: Arch, cache: &Cache, rows: &[(usize, usize)], queries: &[f32], stride: usize) -> Vec<f32> {
    let rows: Vec<Row> = rows
        .iter()
        .map(|&(slot, position)| Row { slot, position, token: 0, place: [position as u32; 3], logits: true })
        .collect();
    let mut sharing = Sharing::default();
    sharing.plan(&rows, cache);
    let heads = cache.heads();
    let mut out = vec![f32::NAN; rows.len() * heads.query_width()];
    // Buffers with leftovers of earlier use.
    let dirty = || vec![f32::NAN; 3000];
    let scratch = &mut Scratch { scores: dirty(), packed: dirty(), sums: dirty(), inverse: dirty() };
    arch.dispatch(Attention { cache, layer: 1, sharing: &sharing, queries, stride, out: &mut out, scratch });
    out
}

#[test]
fn attention_equals_its_definition() {
    for (query_heads, keys, width) in [(4, 2, 64), (4, 4, 8), (6, 1, 20), (2, 1, 2), (5, 1, 128)] {
        let heads = Heads { queries: query_heads, keys, width };
        let row = keys * width;
        let mut cache = Cache::new(heads, 2, 1);
        write(&mut cache, 0, 0..37, 0);
        let at = |position: usize| position * row + 7;
        let query = numbers(query_heads * width, 5);
        for (arch, len) in [Arch::new(), Arch::Scalar]
            .into_iter()
            .flat_map(|arch| [1, 15, 16, 17, 35].map(|len| (arch, len)))
        {
            let out = attend(arch, &cache, &[(0, len - 1)], &query, query.len());
            for head in 0..query_heads {
                let shared = head / (query_heads / keys) * width;
                let weight = |position: usize| {
                    let key = |d: usize| f64::from(number(at(position) + shared + d));
                    let dot: f64 = (0..width).map(|d| f64::from(query[head * width + d]) * key(d)).sum();
                    (dot / (width as f64).sqrt()).exp()
                };
                let total: f64 = (0..len).map(weight).sum();
                for d in 0..width {
                    let value = |position: usize| f64::from(number((at(position) + shared + d) * 3 + 1));
                    let exact =
                        (0..len).map(|position| weight(position) * value(position)).sum::<f64>() / total;
                    assert!((f64::from(out[head * width + d]) - exact).abs() < 2e-6, "{heads:?}, {len}");
                }
            }
        }
    }
}

#[test]
fn rows_together_are_the_bits_of_each_alone() {
    for (query_heads, keys, width) in [(4, 2, 64), (9, 3, 64), (6, 1, 20), (7, 1, 128), (2, 2, 2)] {
        let heads = Heads { queries: query_heads, keys, width };
        let mut cache = Cache::new(heads, 2, 6);
        // Sequences 0 to 3 share 40 tokens, 1 and 2 another 20, 4 nothing; 5 is a prompt with them.
        write(&mut cache, 1, 0..90, 0);
        for (to, positions) in [(2, 60), (0, 40), (3, 40), (5, 40)] {
            cache.take_over(1, to, positions);
            write(&mut cache, to, positions..90, to);
        }
        write(&mut cache, 4, 0..90, 4);
        let rows: Vec<(usize, usize)> = [(0, 40), (1, 89), (2, 61), (3, 64), (4, 17)]
            .into_iter()
            .chain((45..62).map(|at| (5, at)))
            .collect();
        let wide = query_heads * width;
        let stride = wide + 5;
        let queries = numbers(rows.len() * stride, 5);
        for arch in [Arch::new(), Arch::Scalar] {
            for row in &rows {
                cache.claim(row.0, row.1);
            }
            let together = attend(arch, &cache, &rows, &queries, stride);
            for (index, expected) in together.chunks_exact(wide).enumerate() {
                let query = &queries[index * stride..][..stride];
                let (sequence, position) = rows[index];
                let alone = attend(arch, &cache, &[(sequence, position)], query, stride);
                assert_eq!(alone, expected, "{heads:?}, {sequence}, {position}");
                assert_ne!(attend(arch, &cache, &[(sequence, position - 1)], query, stride), expected);
            }
        }
    }
}
