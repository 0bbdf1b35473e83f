//! Times of a day, and the opening hours of a shop.

mod clock;
mod hours;

pub use clock::{Time, between, parse, plus};
pub use hours::{Opening, gaps, is_open, merge, open_minutes};

#[cfg(test)]
mod tests;

/// Returns the next time, from `now` on, at which a shop is open for that many minutes without a break.
pub fn next_visit(openings: &[Opening], now: Time, minutes: u32) -> Option<Time> {
    for opening in merge(openings) {
        let begin = if opening.from.minutes() < now.minutes() { now } else { opening.from };
        if begin.minutes() + minutes <= opening.to.minutes() {
            return Some(begin);
        }
    }
    None
}

/// Writes opening hours as `09:00-12:30, 14:00-18:00`.
pub fn show(openings: &[Opening]) -> String {
    let merged = merge(openings);
    if merged.is_empty() {
        return "closed".to_owned();
    }
    let parts: Vec<String> = merged.iter().map(|opening| format!("{}-{}", opening.from, opening.to)).collect();
    parts.join(", ")
}
