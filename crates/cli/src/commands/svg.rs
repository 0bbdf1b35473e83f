//! What plots as SVG share: the document, the colours of lines and marks, the ticks of an axis.

/// Maximum number of intervals between the ticks of an axis.
const MOST_INTERVALS: f64 = 6.0;

/// The colours of Okabe and Ito, which the colour-blind can tell apart.
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Returns the beginning of a document with a white ground; it ends with `</svg>`.
pub(super) fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

/// Returns the colour of the line or mark with this index.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Returns ticks at multiples of 1, 2, 5, 10, 20, 50, ..., the first at or below `low` and the last at or above `high`.
pub(super) fn ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = (0..).map(|power| 10_f64.powi(power));
    let steps = powers.flat_map(|power| [power, 2.0 * power, 5.0 * power]);
    let bounds = |step: f64| ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let fits = |step: &f64| {
        let (first, last) = bounds(*step);
        last - first <= MOST_INTERVALS
    };
    // Steps grow without end, so that one fits for any finite range.
    let Some(step) = steps.take(60).find(fits) else { return vec![low, high] };
    let (first, last) = bounds(step);
    let count = (last - first).max(1.0) as u32;
    (0..=count).map(|index| (first + f64::from(index)) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_around_the_range() {
        assert_eq!(ticks(51.3, 83.9), [50.0, 60.0, 70.0, 80.0, 90.0]);
        assert_eq!(ticks(0.0, 90.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(ticks(0.0, 3.0), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(ticks(40.0, 40.0), [40.0, 41.0]);
    }
}
