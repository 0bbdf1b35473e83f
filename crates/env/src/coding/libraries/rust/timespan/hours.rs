//! Opening hours of one day.

use crate::clock::Time;

/// A time in which a shop is open; it is closed at `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub from: Time,
    pub to: Time,
}

impl Opening {
    /// Makes an opening; `None` if it ends before it begins.
    pub fn new(from: Time, to: Time) -> Option<Self> {
        if from.minutes() < to.minutes() { Some(Self { from, to }) } else { None }
    }

    /// Makes an opening of whole hours.
    pub fn hours(from: u32, to: u32) -> Self {
        Self { from: Time::of(from * 60), to: Time::of(to * 60) }
    }
}

/// Tells whether one of the openings has a time.
pub fn is_open(openings: &[Opening], time: Time) -> bool {
    let now = time.minutes();
    openings.iter().any(|opening| opening.from.minutes() <= now && now < opening.to.minutes())
}

/// Joins openings that overlap or touch, in order.
pub fn merge(openings: &[Opening]) -> Vec<Opening> {
    let mut sorted = openings.to_vec();
    sorted.sort_by_key(|opening| (opening.from.minutes(), opening.to.minutes()));
    let mut merged: Vec<Opening> = Vec::new();
    for opening in sorted {
        match merged.last_mut() {
            Some(last) if opening.from.minutes() <= last.to.minutes() => {
                if opening.to.minutes() > last.to.minutes() {
                    last.to = opening.to;
                }
            }
            _ => merged.push(opening),
        }
    }
    merged
}

/// Returns how many minutes a shop is open.
pub fn open_minutes(openings: &[Opening]) -> u32 {
    merge(openings).iter().map(|opening| opening.to.minutes() - opening.from.minutes()).sum()
}

/// Returns the breaks between openings that are at least that long.
pub fn gaps(openings: &[Opening], least: u32) -> Vec<Opening> {
    let merged = merge(openings);
    let mut found = Vec::new();
    for place in 1..merged.len() {
        let (before, after) = (merged[place - 1], merged[place]);
        if after.from.minutes() - before.to.minutes() >= least {
            found.push(Opening { from: before.to, to: after.from });
        }
    }
    found
}
