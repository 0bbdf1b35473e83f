//! Compares every kernel, run on the CPU, with the CPU operations in f64.

use std::ops::Range;
use std::sync::Arc;

use pulp::Arch;
use turnwise_core::{Purpose, SamplingParams, Seed};

use super::driver::{Driver, Matrix, Output, Product};
use super::emulator::emulator;
use super::kernels::{CHOICE_CHUNK, Heads, Kernels, Preparation};
use super::memory::{Bf16, Buffer, Part, Plain};
use super::tiles::{key_tiles, query_tiles};
use crate::cpu::decode::TokenSampler;
use crate::cpu::decoder::tests::config;
use crate::ops::attention::{Place, attention, attention_backward};
use crate::ops::divergence::{row_divergence, row_divergence_backward};
use crate::ops::loss_head::{row_backward, row_statistics};
use crate::ops::mlp::{swiglu, swiglu_backward};
use crate::ops::norm::{rms_norm, rms_norm_backward};
use crate::testing::random;
use crate::{AdamWConfig, OptimizerState};

mod attention;
mod choice;
mod head;
mod rows;

struct Rig {
    driver: Arc<dyn Driver>,
    kernels: Kernels,
}

impl Rig {
    fn new(hidden: usize, head: usize) -> Option<Self> {
        let driver = emulator()?;
        let mut config = config(4, 2, true);
        config.hidden_size = hidden;
        config.head_dim = head;
        config.num_attention_heads = hidden / head;
        config.num_key_value_heads = hidden / head;
        config.intermediate_size = 48;
        let kernels = Kernels::new(&driver, &config).unwrap();
        Some(Self { driver, kernels })
    }

    fn of<T: Plain>(&self, values: &[T]) -> Buffer<T> {
        Buffer::of(&self.driver, values).unwrap()
    }

    fn wide(&self, values: &[f64]) -> Buffer<f32> {
        self.of(&values.iter().map(|&x| x as f32).collect::<Vec<f32>>())
    }

    fn narrow(&self, values: &[f64]) -> Buffer<Bf16> {
        self.of(&values.iter().map(|&x| Bf16::from_f32(x as f32)).collect::<Vec<Bf16>>())
    }

    fn ints(&self, values: &[usize]) -> Buffer<i32> {
        self.of(&values.iter().map(|&x| x as i32).collect::<Vec<i32>>())
    }

    fn room<T: Plain>(&self, len: usize) -> Buffer<T> {
        Buffer::new(&self.driver, len).unwrap()
    }

    fn read(&self, part: Part<f32>) -> Vec<f64> {
        part.download(&*self.driver).unwrap().into_iter().map(f64::from).collect()
    }

    fn read_narrow(&self, part: Part<Bf16>) -> Vec<f64> {
        part.download(&*self.driver).unwrap().into_iter().map(|x| f64::from(x.to_f32())).collect()
    }
}

fn exact(seed: u64, len: usize) -> Vec<f64> {
    random(seed, len).into_iter().map(|x| f64::from(Bf16::from_f32(x as f32).to_f32())).collect()
}

fn off(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let off = found
        .iter()
        .zip(expected)
        .fold(0.0f64, |most, (a, b)| if (a - b).is_nan() { f64::NAN } else { most.max((a - b).abs()) });
    off / largest
}

const WIDE: f64 = 2e-6;
/// Tolerance of bfloat16: half a unit in the last of eight bits.
const NARROW: f64 = 4e-3;
/// Tolerance of two roundings (scores and weights).
const TWICE: f64 = 1e-2;

#[track_caller]
fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let off = off(found, expected);
    assert!(off < tolerance, "{what}: off by {off:e}, {tolerance:e} allowed");
}

#[test]
fn what_was_recorded_runs_again() {
    let Some(rig) = Rig::new(64, 16) else { return };
    let values = rig.wide(&[1.0, 2.0, 3.0]);
    rig.driver.record().unwrap();
    rig.kernels.scale(values.all(), 2.0).unwrap();
    let recording = rig.driver.finish_recording().unwrap();
    assert_eq!(rig.read(values.all()), [1.0, 2.0, 3.0], "recording runs nothing");
    rig.driver.replay(recording).unwrap();
    rig.driver.replay(recording).unwrap();
    assert_eq!(rig.read(values.all()), [4.0, 8.0, 12.0]);
    rig.driver.forget(recording);
}

#[test]
fn products_see_their_operands_transposed_where_asked() {
    let Some(rig) = Rig::new(64, 16) else { return };
    let (m, k, n) = (3, 5, 4);
    let (a, b) = (exact(1, m * k), exact(2, k * n));
    let flip = |x: &[f64], rows: usize, columns: usize| -> Vec<f64> {
        (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
    };
    let expected: Vec<f64> = (0..m * n)
        .map(|at| 1.0 + 0.5 * (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f64>())
        .collect();
    for (flip_a, flip_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let left = rig.narrow(&if flip_a { flip(&a, m, k) } else { a.clone() });
        let right = rig.narrow(&if flip_b { flip(&b, k, n) } else { b.clone() });
        let out = rig.wide(&vec![1.0; m * n]);
        let product = Product {
            a: Matrix { at: left.all().at, stride: if flip_a { m } else { k }, transposed: flip_a },
            b: Matrix { at: right.all().at, stride: if flip_b { k } else { n }, transposed: flip_b },
            c: Output { at: out.all().at, stride: n, wide: true },
            m,
            n,
            k,
            alpha: 0.5,
            beta: 1.0,
        };
        rig.driver.multiply(&product).unwrap();
        close("product", &rig.read(out.all()), &expected, WIDE);
    }
}
