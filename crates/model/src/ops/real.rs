use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// Arguments: `m`, `n`, `k`; the destination with its column and row stride, and whether it is
/// read; the left and the right operand with their strides; the factors of the destination and of
/// the product; three conjugation flags; the number of threads.
pub(crate) type MatrixProduct<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    gemm_common::Parallelism,
);

/// A floating-point type: `f32` for training, `f64` for checking gradients.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;

    /// Converts to the nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// Converts exactly.
    fn to_f64(self) -> f64;
    /// Returns `sqrt x`.
    fn sqrt(self) -> Self;
    /// Returns `e^x`; vectorizes for `f32`.
    fn exp(self) -> Self;
    /// Returns `ln x`.
    fn ln(self) -> Self;

    /// Returns this CPU's fastest matrix product.
    fn matrix_product() -> MatrixProduct<Self>;

    /// Returns the slice if this type is `f32`.
    fn f32s(_: &[Self]) -> Option<&[f32]> {
        None
    }
    /// Returns the slice if this type is `f32`.
    fn f32s_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }

    /// Returns the larger number; unspecified if either is NaN.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }

    /// Returns `e^x`, accurate to about two units in the last place. For arguments below -87, the
    /// result stays near the smallest normal number. Propagates NaN.
    ///
    /// With `x = n ln 2 + r` and `|r| <= ln 2 / 2`, a polynomial gives `e^r` (coefficients from
    /// Cephes `expf`), and `n` is added to the exponent.
    #[inline(always)]
    fn exp(self) -> Self {
        // Adding 1.5 * 2^23 rounds to an integer in the low bits.
        const MAGIC: f32 = 12_582_912.0;
        let low = if self < -87.3 { -87.3 } else { self };
        let x = if low > 88.0 { 88.0 } else { low };
        let shifted = x * std::f32::consts::LOG2_E + MAGIC;
        let n = shifted - MAGIC;
        let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
        let mut p = 1.987_569_2e-4;
        for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = p * r + coefficient;
        }
        let y = (r * r) * p + (r + 1.0);
        f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23))
    }

    #[inline(always)]
    fn ln(self) -> Self {
        f32::ln(self)
    }

    #[inline(always)]
    fn matrix_product() -> MatrixProduct<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }

    #[inline(always)]
    fn f32s(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }

    #[inline(always)]
    fn f32s_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        f64::ln(self)
    }

    #[inline(always)]
    fn matrix_product() -> MatrixProduct<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

#[cfg(test)]
mod tests {
    use super::Real;

    #[test]
    fn exp_is_accurate() {
        for index in 0..175_000 {
            let x = -87.0 + index as f32 * 1e-3;
            let exact = f64::from(x).exp();
            let error = (f64::from(Real::exp(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "exp({x}): relative error {error:e}");
        }
        assert!(Real::exp(f32::NEG_INFINITY) < 1.3e-38);
        assert!(Real::exp(f32::NAN).is_nan());
        assert_eq!(Real::exp(0.0f32), 1.0);
    }
}
