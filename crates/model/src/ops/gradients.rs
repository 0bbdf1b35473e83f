use rayon::prelude::*;

use super::dispatch::{Loop, add_assign, vectorised};

/// Number of elements that are summed at a time, both for the gradient and for its norm.
pub(crate) const CHUNK: usize = 1 << 14;

/// Adds up the lanes' gradients of a chunk that starts at element `first`, and returns the sum of
/// squares.
struct AddAndSquare;

impl Loop<(&mut [f32], &[Vec<f32>], usize)> for AddAndSquare {
    type Output = f64;
    #[expect(clippy::inline_always, reason = "it is compiled for wider vectors only where it is inlined")]
    #[inline(always)]
    fn run((total, others, first): (&mut [f32], &[Vec<f32>], usize)) -> f64 {
        for other in others {
            add_assign(total, &other[first..]);
        }
        let mut lanes = [0.0f64; 8];
        let (chunks, rest) = total.as_chunks::<8>();
        for chunk in chunks {
            for lane in 0..8 {
                lanes[lane] += f64::from(chunk[lane]) * f64::from(chunk[lane]);
            }
        }
        lanes.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>()
    }
}

/// Adds all gradients to the first, in lane order, and returns the global norm, which does not
/// depend on the number of threads.
pub fn sum_gradients(gradients: &mut [Vec<f32>]) -> f64 {
    let Some((total, others)) = gradients.split_first_mut() else { return 0.0 };
    let others = &*others;
    let squares: Vec<f64> = total
        .par_chunks_mut(CHUNK)
        .enumerate()
        .map(|(index, total)| vectorised(AddAndSquare, (total, others, index * CHUNK)))
        .collect();
    squares.iter().sum::<f64>().sqrt()
}
