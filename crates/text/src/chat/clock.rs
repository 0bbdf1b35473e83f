//! Dates for `strftime_now`.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// The supported `strftime` directives, which depend on neither locale nor time zone. A `-` after
/// the `%` disables padding.
const DIRECTIVES: &str = "YymdejHIMSpBbhAaFT%";

/// Formats a UTC time (`seconds` since 1970) like C's `strftime` in the C locale.
///
/// # Errors
/// Fails on an unsupported directive or a year outside -9999 to 9999.
pub(super) fn strftime(seconds: i64, format: &str) -> Result<String, String> {
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            continue;
        }
        match rest.next().and_then(|next| if next == '-' { rest.next() } else { Some(next) }) {
            Some(directive) if DIRECTIVES.contains(directive) => {}
            Some(other) => return Err(format!("strftime_now: `%{other}` is not supported")),
            None => return Err("strftime_now: the format ends with `%`".to_owned()),
        }
    }
    let moment = Timestamp::from_second(seconds).map_err(|error| format!("strftime_now: {error}"))?;
    strtime::format(format, &moment.to_zoned(TimeZone::UTC)).map_err(|error| format!("strftime_now: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds, format| strftime(seconds, format).unwrap();
        assert_eq!(at(super::super::FIXED_TIME, "%d %b %Y, %A"), "26 Jul 2024, Friday");
        assert_eq!(at(0, "%F %T %j %a %I %p"), "1970-01-01 00:00:00 001 Thu 12 AM");
        assert_eq!(at(951_782_400 + 47_105, "%Y-%m-%d %H:%M:%S"), "2000-02-29 13:05:05");
        assert_eq!(at(-1, "%-d/%-m/%y %e%%"), "31/12/69 31%");
        assert_eq!(at(0, "%e|%-e|%h|%-j|%-I|%-H|%-S|%B"), " 1|1|Jan|1|12|0|0|January");
        assert_eq!(at(4_107_542_400, "%F"), "2100-03-01");
        for wrong in ["%Q", "%", "%-", "%c", "%-Z"] {
            assert!(strftime(0, wrong).is_err(), "{wrong}");
        }
        assert!(strftime(i64::MAX, "%F").is_err());
    }
}
