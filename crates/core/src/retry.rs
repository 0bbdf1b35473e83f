//! HTTP retries.

use std::time::Duration;

/// Returns true for the HTTP statuses that a retry may fix: 408, 409, 425, 429, 500 and above.
pub fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500..)
}

/// Returns how long to wait before retry `attempt` (from 1): `first_s`, doubled each time, at most
/// `longest_s`. `share` in [0, 1] shortens the wait by up to half, so that clients do not
/// synchronize.
pub fn backoff(first_s: f64, longest_s: f64, attempt: u32, share: f64) -> Duration {
    let doubled = first_s * 2f64.powi(attempt.saturating_sub(1).min(60) as i32);
    Duration::from_secs_f64(doubled.min(longest_s) * (1.0 - 0.5 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let seconds = |attempt, share| backoff(0.5, 3.0, attempt, share).as_secs_f64();
        assert_eq!([1, 2, 3, 4, 99].map(|attempt| seconds(attempt, 0.0)), [0.5, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!((seconds(1, 1.0), seconds(4, 0.5)), (0.25, 2.25));
    }

    #[test]
    fn refusals_are_not_tried_again() {
        assert!([408, 409, 425, 429, 500, 503].into_iter().all(is_transient_status));
        assert!(![200, 301, 400, 401, 403, 404, 422].into_iter().any(is_transient_status));
    }
}
