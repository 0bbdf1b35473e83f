//! How well a score separates two classes.

/// Returns the area under the ROC curve: the share of (positive, negative) pairs in which the
/// positive scores higher, ties counting half. Returns `None` if a class is empty or a score is
/// NaN.
///
/// Computed as `(sum of the positives' mid-ranks - p (p + 1) / 2) / (p n)` (Mann and Whitney 1947).
pub fn roc_auc(scores: &[(f64, bool)]) -> Option<f64> {
    if scores.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = sorted.iter().filter(|(_, positive)| *positive).count() as f64;
    let negatives = sorted.len() as f64 - positives;
    if positives == 0.0 || negatives == 0.0 {
        return None;
    }
    let (mut rank, mut sum) = (0.0, 0.0);
    for tie in sorted.chunk_by(|a, b| a.0 == b.0) {
        let middle = rank + f64::midpoint(tie.len() as f64, 1.0);
        sum += middle * tie.iter().filter(|(_, positive)| *positive).count() as f64;
        rank += tie.len() as f64;
    }
    Some((sum - positives * (positives + 1.0) / 2.0) / (positives * negatives))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_share_of_pairs_in_the_right_order() {
        let scores = [(0.1, false), (0.4, true), (0.35, false), (0.8, true), (0.4, false), (-1.0, true)];
        let (mut right, mut pairs) = (0.0, 0.0);
        for (positive, _) in scores.iter().filter(|(_, positive)| *positive) {
            for (negative, _) in scores.iter().filter(|(_, positive)| !positive) {
                pairs += 1.0;
                right += if positive > negative {
                    1.0
                } else if positive == negative {
                    0.5
                } else {
                    0.0
                };
            }
        }
        assert!((roc_auc(&scores).unwrap() - right / pairs).abs() < 1e-12);
        assert_eq!(roc_auc(&[(1.0, true), (0.0, false)]), Some(1.0));
        assert_eq!(roc_auc(&[(1.0, true), (1.0, false)]), Some(0.5));
        assert_eq!(roc_auc(&[(1.0, true)]), None);
        assert_eq!(roc_auc(&[(f64::NAN, true), (1.0, false)]), None);
    }
}
