//! Dates for `strftime_now`.

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in UTC as text, as C's `strftime` writes it in the C locale.
pub(super) fn strftime(seconds: i64, format: &str) -> Result<String, String> {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let name = |names: &'static [&str], index: i64| names.get(index as usize).copied().unwrap_or_default();
    let weekday = name(&DAYS, (days + 4).rem_euclid(7));
    let month_name = name(&MONTHS, month - 1);
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut padded = true;
        let mut directive = rest.next();
        if directive == Some('-') {
            padded = false;
            directive = rest.next();
        }
        let number =
            |value: i64, width: usize| if padded { format!("{value:0width$}") } else { value.to_string() };
        out.push_str(&match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year.rem_euclid(100), 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('e') if padded => format!("{day:2}"),
            Some('e') => day.to_string(),
            Some('j') => number(days - days_of(year, 1, 1) + 1, 3),
            Some('H') => number(hour, 2),
            Some('I') => number(half, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => "%".to_owned(),
            Some(other) => return Err(format!("strftime_now: `%{other}` is not supported")),
            None => return Err("strftime_now: the format ends with `%`".to_owned()),
        });
    }
    Ok(out)
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The date of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    // Counted in eras of 400 years, which all have the same number of days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * era + i64::from(month <= 2), month, day)
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
        assert_eq!(at(4_107_542_400, "%F"), "2100-03-01");
        assert!(strftime(0, "%Q").is_err());
        assert!(strftime(0, "%").is_err());
    }

    #[test]
    fn every_day_of_centuries_follows_the_one_before() {
        let mut before = date(-80_000);
        for day in -79_999..80_000 {
            let next = date(day);
            let follows = next == (before.0, before.1, before.2 + 1)
                || next == (before.0, before.1 + 1, 1)
                || next == (before.0 + 1, 1, 1);
            assert!(follows && days_of(next.0, next.1, next.2) == day, "{before:?} {next:?}");
            before = next;
        }
    }
}
