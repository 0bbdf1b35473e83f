//! Antialiased bicubic resizing, bit-identical to Pillow's `Image.resize(size, BICUBIC)` on RGB.

const PRECISION: u32 = 32 - 8 - 2;

/// Source pixels along one axis from which an output pixel is computed, with their weights.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

fn kernel(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

/// Returns the taps of every output pixel. The kernel (Keys cubic, `a = -0.5`) is widened if the
/// image shrinks.
fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let widening = scale.max(1.0);
    let support = 2.0 * widening;
    let inverse = 1.0 / widening;
    (0..to)
        .map(|index| {
            let center = (index as f64 + 0.5) * scale;
            // Truncated towards zero, like a C cast.
            let first = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            let weights: Vec<f64> =
                (first..end).map(|pixel| kernel((pixel as f64 - center + 0.5) * inverse)).collect();
            let sum: f64 = weights.iter().sum();
            let fixed = |weight: &f64| {
                let value = if sum == 0.0 { *weight } else { weight / sum } * f64::from(1 << PRECISION);
                (value + if value < 0.0 { -0.5 } else { 0.5 }) as i32
            };
            Taps { first, weights: weights.iter().map(fixed).collect() }
        })
        .collect()
}

fn level(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

pub(super) fn resize(rgb: &[u8], [height, width]: [usize; 2], [to_height, to_width]: [usize; 2]) -> Vec<u8> {
    const HALF: i32 = 1 << (PRECISION - 1);
    let mut narrow = Vec::new();
    let rows = if width == to_width {
        rgb
    } else {
        let taps = taps(width, to_width);
        narrow.reserve(height * to_width * 3);
        for row in rgb.chunks_exact(3 * width) {
            for Taps { first, weights } in &taps {
                let mut sums = [HALF; 3];
                for (pixel, &weight) in row[3 * first..].chunks_exact(3).zip(weights) {
                    for (sum, &value) in sums.iter_mut().zip(pixel) {
                        *sum += i32::from(value) * weight;
                    }
                }
                narrow.extend(sums.map(level));
            }
        }
        &narrow
    };
    if height == to_height {
        return rows.to_vec();
    }
    let stride = 3 * to_width;
    let mut out = Vec::with_capacity(to_height * stride);
    let mut sums = vec![HALF; stride];
    for Taps { first, weights } in &taps(height, to_height) {
        sums.fill(HALF);
        for (row, &weight) in rows[first * stride..].chunks_exact(stride).zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += i32::from(value) * weight;
            }
        }
        out.extend(sums.iter().map(|&sum| level(sum)));
    }
    out
}
