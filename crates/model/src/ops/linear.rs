use super::Real;
use super::bf16::{self, Kernel};
use super::dispatch::{Loop, add_assign, vectorised};

/// A matrix with element `(r, c)` at `r * row_stride + c * column_stride`.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, T> View<'a, T> {
    /// Returns a contiguous row-major matrix.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Returns a row-major matrix with rows `row_stride` elements apart.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// Returns the transpose.
    pub fn t(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

/// A row-major matrix to write, with rows `row_stride >= columns` elements apart.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
}

impl<'a, T> ViewMut<'a, T> {
    /// Returns a contiguous matrix.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Returns a matrix with rows `row_stride` elements apart.
    pub fn strided(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride }
    }

    /// Panics unless this matrix can hold the product `a b`.
    pub(super) fn check(&self, a: &View<'_, T>, b: &View<'_, T>) {
        assert!(
            self.rows == a.rows && self.columns == b.columns && a.columns == b.rows,
            "shapes of a product"
        );
        assert!(self.row_stride >= self.columns, "rows of a product must not overlap");
        let extent_to = extent(self.rows, self.columns, self.row_stride, 1);
        assert!(extent_to <= self.data.len(), "destination of a product");
        assert!(
            extent(a.rows, a.columns, a.row_stride, a.column_stride) <= a.data.len(),
            "left of a product"
        );
        assert!(
            extent(b.rows, b.columns, b.row_stride, b.column_stride) <= b.data.len(),
            "right of a product"
        );
    }
}

impl<'a, T: Real> View<'a, T> {
    fn f32s(self) -> Option<View<'a, f32>> {
        let Self { data, rows, columns, row_stride, column_stride } = self;
        Some(View { data: T::f32s(data)?, rows, columns, row_stride, column_stride })
    }
}

impl<T: Real> ViewMut<'_, T> {
    fn f32s(&mut self) -> Option<ViewMut<'_, f32>> {
        let (rows, columns, row_stride) = (self.rows, self.columns, self.row_stride);
        Some(ViewMut { data: T::f32s_mut(self.data)?, rows, columns, row_stride })
    }
}

/// Whether a product overwrites its destination or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// Overwrites the destination.
    Set,
    /// Adds to the destination.
    Add,
}

fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + (columns - 1) * column_stride + 1 }
}

/// Computes `to = scale * a b`, or `to += scale * a b`, on one thread.
///
/// # Panics
/// Panics if the shapes do not match each other or their slices.
#[expect(unsafe_code, reason = "the kernel takes pointers; every bound is checked right before")]
#[expect(clippy::needless_pass_by_value, reason = "a view is a borrow itself")]
pub fn matmul<T: Real>(to: ViewMut<'_, T>, a: View<'_, T>, b: View<'_, T>, into: Accumulate, scale: T) {
    to.check(&a, &b);
    let product = T::matrix_product();
    // Kernels write columns: contiguous rows are computed as `b' a'`.
    let (m, n, column_stride, row_stride, left, left_strides, right, right_strides) = if to.row_stride > 1 {
        let (left, right) = ((b.row_stride, b.column_stride), (a.row_stride, a.column_stride));
        (to.columns, to.rows, to.row_stride, 1, &b, left, &a, right)
    } else {
        let (left, right) = ((a.column_stride, a.row_stride), (b.column_stride, b.row_stride));
        (to.rows, to.columns, 1, to.row_stride, &a, left, &b, right)
    };
    // SAFETY: the check keeps all elements inside their slices; rows of the exclusively borrowed
    // destination do not overlap.
    unsafe {
        product(
            m,
            n,
            a.columns,
            to.data.as_mut_ptr(),
            column_stride as isize,
            row_stride as isize,
            into == Accumulate::Add,
            left.data.as_ptr(),
            left_strides.0 as isize,
            left_strides.1 as isize,
            right.data.as_ptr(),
            right_strides.0 as isize,
            right_strides.1 as isize,
            T::ONE,
            scale,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

/// Computes [`matmul`], in bf16 if a kernel is given and `T` is `f32`.
pub(crate) fn matmul_in<T: Real>(
    bf16: Option<Kernel>,
    mut to: ViewMut<'_, T>,
    a: View<'_, T>,
    b: View<'_, T>,
    into: Accumulate,
    scale: T,
) {
    if let (Some(kernel), Some(a), Some(b)) = (bf16, a.f32s(), b.f32s())
        && let Some(to) = to.f32s()
    {
        bf16::product(kernel, to, a, b, into, scale.to_f64() as f32);
    } else {
        matmul(to, a, b, into, scale);
    }
}

/// Computes `y = x W^T (+ bias)`, or `y += x W^T (+ bias)`. `x` is `[rows, inputs]`, `weight` is
/// `[outputs, inputs]`.
pub(crate) fn linear<T: Real>(
    bf16: Option<Kernel>,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
    into: Accumulate,
    [rows, inputs, outputs]: [usize; 3],
) {
    let mut into = into;
    if let Some(bias) = bias {
        for row in y[..rows * outputs].chunks_exact_mut(outputs) {
            if into == Accumulate::Set {
                row.copy_from_slice(bias);
            } else {
                add_assign(row, bias);
            }
        }
        into = Accumulate::Add;
    }
    let weight = View::new(weight, outputs, inputs).t();
    matmul_in(bf16, ViewMut::new(y, rows, outputs), View::new(x, rows, inputs), weight, into, T::ONE);
}

/// Computes the gradient `d_x = d_y W` of [`linear`]'s input, or `d_x += d_y W`.
pub(crate) fn linear_backward_input<T: Real>(
    bf16: Option<Kernel>,
    d_y: &[T],
    weight: &[T],
    d_x: &mut [T],
    into: Accumulate,
    [rows, inputs, outputs]: [usize; 3],
) {
    let (d_y, weight) = (View::new(d_y, rows, outputs), View::new(weight, outputs, inputs));
    matmul_in(bf16, ViewMut::new(d_x, rows, inputs), d_y, weight, into, T::ONE);
}

pub(crate) fn linear_backward_weight<T: Real>(
    bf16: Option<Kernel>,
    d_y: &[T],
    x: &[T],
    d_weight: &mut [T],
    [rows, inputs, outputs]: [usize; 3],
) {
    let (d_y, x) = (View::new(d_y, rows, outputs).t(), View::new(x, rows, inputs));
    matmul_in(bf16, ViewMut::new(d_weight, outputs, inputs), d_y, x, Accumulate::Add, T::ONE);
}

/// Adds the sum of `d_y`'s rows to `d_bias`.
pub fn linear_backward_bias<T: Real>(d_y: &[T], d_bias: &mut [T]) {
    struct Rows;

    impl<T: Real> Loop<(&[T], &mut [T])> for Rows {
        type Output = ();
        #[inline(always)]
        fn run((d_y, d_bias): (&[T], &mut [T])) {
            for row in d_y.chunks_exact(d_bias.len()) {
                add_assign(d_bias, row);
            }
        }
    }

    vectorised(Rows, (d_y, d_bias));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, random};

    const SHAPE: [usize; 3] = [5, 7, 3];

    fn output(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; 15];
        linear(None, x, weight, Some(bias), &mut y, Accumulate::Set, SHAPE);
        y
    }

    #[test]
    fn a_product_is_its_definition() {
        let (a, b) = (random(1, 12), random(2, 20));
        let mut to = vec![1.0; 2 * 4 + 5];
        // `a` is [3, 4] transposed, with a gap; only rows of 2 are written.
        matmul(
            ViewMut::strided(&mut to, 4, 2, 3),
            View::new(&a, 3, 4).t(),
            View::strided(&b, 3, 2, 5),
            Accumulate::Add,
            0.5,
        );
        for row in 0..4 {
            for column in 0..2 {
                let sum: f64 = (0..3).map(|k| a[k * 4 + row] * b[k * 5 + column]).sum();
                assert!((to[row * 3 + column] - 1.0 - 0.5 * sum).abs() < 1e-14);
            }
        }
        assert_eq!((to[2], to[5], to[8]), (1.0, 1.0, 1.0), "gaps stay untouched");
    }

    #[test]
    #[should_panic(expected = "left of a product")]
    fn a_product_outside_its_slice_is_refused() {
        let mut to = [0.0f64; 4];
        let (a, b) = ([0.0; 3], [0.0; 4]);
        matmul(ViewMut::new(&mut to, 2, 2), View::new(&a, 2, 2), View::new(&b, 2, 2), Accumulate::Set, 1.0);
    }

    #[test]
    fn backward_is_the_derivative() {
        let (x, weight, bias, d_y) = (random(3, 35), random(4, 21), random(5, 3), random(6, 15));
        let loss = |y: &[f64]| y.iter().zip(&d_y).map(|(y, d)| y * d).sum::<f64>();
        let (mut d_x, mut d_weight, mut d_bias) = (vec![0.0; 35], vec![0.0; 21], vec![0.0; 3]);
        linear_backward_input(None, &d_y, &weight, &mut d_x, Accumulate::Set, SHAPE);
        linear_backward_weight(None, &d_y, &x, &mut d_weight, SHAPE);
        linear_backward_bias(&d_y, &mut d_bias);
        check_gradient("x", &x, &d_x, |x| loss(&output(x, &weight, &bias)));
        check_gradient("weight", &weight, &d_weight, |weight| loss(&output(&x, weight, &bias)));
        check_gradient("bias", &bias, &d_bias, |bias| loss(&output(&x, &weight, bias)));
    }

    #[test]
    #[should_panic(expected = "derivative")]
    fn a_wrong_derivative_is_found() {
        let (x, weight, bias) = (random(3, 35), random(4, 21), random(5, 3));
        let mut d_x = vec![0.0; 35];
        linear_backward_input(None, &[1.0; 15], &weight, &mut d_x, Accumulate::Set, SHAPE);
        d_x[11] *= 1.0001;
        check_gradient("x", &x, &d_x, |x| output(x, &weight, &bias).iter().sum());
    }
}
