/// Formats a number with four significant digits, and with an exponent if it is below 0.0001 or at
/// least one million.
pub(crate) fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    let scientific = format!("{value:.3e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = usize::try_from(3 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_numbers_stay_numbers() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.5546875, "0.5547"),
            (-12.3456, "-12.35"),
            (128.0, "128"),
            (9999.96, "10000"),
            (123_456.0, "123456"),
            (0.00012344, "0.0001234"),
            (3.2e-7, "3.2e-7"),
            (1e300, "1e300"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
