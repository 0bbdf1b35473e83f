use std::cell::Cell;
use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

use super::Real;

/// Number of partial sums in a reduction, a multiple of every vector width, so that results do not
/// depend on the CPU.
pub const LANES: usize = 16;

thread_local! {
    static ARCH: Cell<Option<Arch>> = const { Cell::new(None) };
}

fn arch() -> Arch {
    ARCH.with(|cell| {
        cell.get().unwrap_or_else(|| {
            let arch = Arch::new();
            cell.set(Some(arch));
            arch
        })
    })
}

/// A loop over slices. `run` must be `#[inline(always)]`: only inlined code, without closures or
/// function pointers, is compiled for a vector width.
pub trait Loop<A> {
    /// Result of the loop.
    type Output;

    /// Runs the loop.
    fn run(arguments: A) -> Self::Output;
}

struct Call<A, L>(A, PhantomData<L>);

impl<A, L: Loop<A>> WithSimd for Call<A, L> {
    type Output = L::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> L::Output {
        L::run(self.0)
    }
}

/// Runs a loop compiled for the CPU's widest vectors.
#[inline(always)]
pub fn vectorised<A, L: Loop<A>>(_: L, arguments: A) -> L::Output {
    arch().dispatch(Call::<A, L>(arguments, PhantomData))
}

/// Adds the lanes pairwise in a fixed order.
#[inline(always)]
pub fn fold<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for index in 0..half {
            lanes[index] += lanes[index + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Returns `sum a_i b_i`.
#[inline(always)]
pub fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += a * b;
    }
    fold(lanes)
}

/// Returns `max a_i`, or minus infinity for an empty slice.
#[inline(always)]
pub(crate) fn maximum<T: Real>(a: &[T]) -> T {
    let mut lanes = [T::NEG_INFINITY; LANES];
    let (a, rest) = a.as_chunks::<LANES>();
    for a in a {
        for lane in 0..LANES {
            lanes[lane] = a[lane].larger(lanes[lane]);
        }
    }
    lanes.iter().chain(rest).fold(T::NEG_INFINITY, |best, &value| value.larger(best))
}

/// Adds `values` to `total` element by element.
#[inline(always)]
pub fn add_assign<T: Real>(total: &mut [T], values: &[T]) {
    for (total, &value) in total.iter_mut().zip(values) {
        *total += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dot;

    impl Loop<(&Vec<f32>, &Vec<f32>)> for Dot {
        type Output = f32;
        #[inline(always)]
        fn run((a, b): (&Vec<f32>, &Vec<f32>)) -> f32 {
            dot(a, b)
        }
    }

    #[test]
    fn reductions_do_not_depend_on_the_vector_width() {
        let a: Vec<f32> = (0..1003).map(|index| (index as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..1003).map(|index| (index as f32 * 0.11).cos()).collect();
        let wide = vectorised(Dot, (&a, &b));
        let narrow = Arch::Scalar.dispatch(Call::<_, Dot>((&a, &b), PhantomData));
        assert_eq!(wide.to_bits(), narrow.to_bits());
        let exact: f64 = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        assert!((f64::from(wide) - exact).abs() < 1e-4);
        assert_eq!(maximum(&a), a.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    }
}
