//! Times of a day.

use std::fmt;

const DAY: u32 = 24 * 60;

/// A time of a day in hours and minutes; `24:00` is its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Time {
    hour: u32,
    minute: u32,
}

impl Time {
    /// Makes a time from the minutes since midnight; more than a day begins again.
    pub fn of(minutes: u32) -> Self {
        let minutes = if minutes > DAY { minutes % DAY } else { minutes };
        Self { hour: minutes / 60, minute: minutes % 60 }
    }

    /// Returns the minutes since midnight.
    pub fn minutes(self) -> u32 {
        self.hour * 60 + self.minute
    }
}

impl fmt::Display for Time {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:02}:{:02}", self.hour, self.minute)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")
    }
}

/// Reads `14:05`, `14`, `2pm` or `2:05 pm`.
pub fn parse(text: &str) -> Option<Time> {
    let text = text.trim().to_lowercase();
    let afternoon = text.ends_with("pm");
    let twelve = afternoon || text.ends_with("am");
    let digits = if twelve { text[..text.len() - 2].trim() } else { text.as_str() };
    let (hour, minute) = digits.split_once(':').unwrap_or((digits, "0"));
    let mut hour: u32 = hour.parse().ok()?;
    let minute: u32 = minute.parse().ok()?;
    if twelve {
        if hour == 0 || hour > 12 {
            return None;
        }
        hour = hour % 12;
        if afternoon {
            hour = hour + 12;
        }
    }
    let valid = minute < 60 && hour * 60 + minute <= DAY;
    if valid { Some(Time { hour, minute }) } else { None }
}

/// Returns a time some minutes later, on the next day if need be.
pub fn plus(time: Time, minutes: u32) -> Time {
    Time::of((time.minutes() + minutes) % DAY)
}

/// Returns the minutes from one time to another, over midnight if the second is earlier.
pub fn between(from: Time, to: Time) -> u32 {
    if to.minutes() >= from.minutes() {
        to.minutes() - from.minutes()
    } else {
        DAY - from.minutes() + to.minutes()
    }
}
