//! Vectorized inner products of f32 or f16 rows. A fixed number of lanes makes results independent
//! of the CPU's vector width.

#![expect(clippy::inline_always, reason = "a loop is compiled for wider vectors only where it is inlined")]

use pulp::{Arch, Simd, WithSimd};

const LANES: usize = 16;

struct Widen<'a> {
    from: &'a [u8],
    to: &'a mut [f32],
}

impl WithSimd for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (from, _) = self.from.as_chunks::<2>();
        for (to, from) in self.to.iter_mut().zip(from) {
            *to = widen(u16::from_le_bytes(*from));
        }
    }
}

/// Converts a finite f16: shifts its bits, then corrects the exponent bias with an exact
/// multiplication.
#[inline(always)]
fn widen(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(size.to_bits() | (bits & 0x8000) << 16)
}

/// Converts little-endian f16 values.
pub(super) fn widen_all(arch: Arch, from: &[u8], to: &mut [f32]) {
    arch.dispatch(Widen { from, to });
}

/// Returns the bits of the nearest f16, ties to even.
pub(super) fn narrow(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

struct Dots<'a> {
    rows: &'a [f32],
    query: &'a [f32],
    to: &'a mut [f32],
}

impl WithSimd for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, to) in self.rows.chunks_exact(self.query.len()).zip(self.to) {
            *to = dot(row, self.query);
        }
    }
}

#[inline(always)]
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((left, left_rest), (right, right_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    for (left, right) in left.iter().zip(right) {
        for lane in 0..LANES {
            lanes[lane] += left[lane] * right[lane];
        }
    }
    for (lane, (left, right)) in left_rest.iter().zip(right_rest).enumerate() {
        lanes[lane] += left * right;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

pub(super) fn dots(arch: Arch, rows: &[f32], query: &[f32], to: &mut [f32]) {
    arch.dispatch(Dots { rows, query, to });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_comes_back() {
        for bits in 0..=u16::MAX {
            // Infinities and NaN are rejected earlier.
            if bits & 0x7c00 == 0x7c00 {
                continue;
            }
            let value = widen(bits);
            assert_eq!(narrow(value), bits, "{value}");
            let mut wide = [0.0];
            widen_all(Arch::new(), &bits.to_le_bytes(), &mut wide);
            assert_eq!(wide[0].to_bits(), value.to_bits());
        }
        assert_eq!(
            [widen(0x3c00), widen(0xc000), widen(0x7bff), widen(1)],
            [1.0, -2.0, 65504.0, 2f32.powi(-24)]
        );
    }

    #[test]
    fn numbers_between_go_to_the_nearer() {
        for index in 0..20_000 {
            let value = (index as f32 * 0.7315).sin() * 2f32.powi(index % 20 - 16);
            let found = narrow(value);
            let error = (widen(found) - value).abs();
            for other in [found.wrapping_sub(1), found.wrapping_add(1)] {
                assert!(other & 0x7c00 == 0x7c00 || error <= (widen(other) - value).abs(), "{value}");
            }
        }
        assert_eq!(narrow(1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(narrow(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
    }

    #[test]
    fn products_do_not_depend_on_the_vector_width() {
        let rows: Vec<f32> = (0..5 * 37).map(|index| (index as f32 * 0.37).sin()).collect();
        let query: Vec<f32> = (0..37).map(|index| (index as f32 * 0.11).cos()).collect();
        let (mut wide, mut narrow) = ([0.0; 5], [0.0; 5]);
        dots(Arch::new(), &rows, &query, &mut wide);
        dots(Arch::Scalar, &rows, &query, &mut narrow);
        assert_eq!(wide.map(f32::to_bits), narrow.map(f32::to_bits));
        for (row, found) in rows.chunks(37).zip(wide) {
            let exact: f64 = row.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(found) - exact).abs() < 1e-5);
        }
    }
}
