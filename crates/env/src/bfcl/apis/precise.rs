//! Logarithms and roots to a given precision, in the formats of `mpmath` and `decimal`.

use num_bigint::{BigInt, BigUint, Sign};

use super::{Class, error};
use crate::python::values::{Order, Raise, Value, compare, dict, float_of, int_of};

/// Maximum precision in digits. The original has no maximum, but takes very long for more digits.
const MOST_DIGITS: i64 = 2000;

const BITS: f64 = 3.321_928_094_887_362_6;

const GUARD: u64 = 64;

/// `mantissa * 2^exponent`, or infinity.
#[derive(Clone, Debug)]
struct Real {
    negative: bool,
    mantissa: BigUint,
    exponent: i64,
    infinite: bool,
}

impl Real {
    fn new(negative: bool, mantissa: BigUint, exponent: i64) -> Self {
        Self { negative, mantissa, exponent, infinite: false }
    }

    fn zero() -> Self {
        Self::new(false, BigUint::default(), 0)
    }

    fn is_zero(&self) -> bool {
        !self.infinite && self.mantissa.bits() == 0
    }

    /// Converts a Python value: numbers exactly, strings rounded to `precision` bits.
    fn of(value: &Value, precision: u64) -> Result<Self, Raise> {
        let cannot = || Raise::type_error(format!("cannot create mpf from {}", value.repr()));
        Ok(match value {
            Value::Bool(_) | Value::Int(_) | Value::Big(_) => {
                let number: BigInt = match int_of(value)? {
                    Value::Int(number) => number.into(),
                    Value::Big(number) => number,
                    _ => BigInt::default(),
                };
                Self::new(number.sign() == Sign::Minus, number.magnitude().clone(), 0)
            }
            Value::Float(number) => Self::of_float(*number),
            Value::Str(_) => {
                let number = float_of(value).map_err(|_| cannot())?;
                Self::of_float(number).rounded(precision)
            }
            _ => return Err(cannot()),
        })
    }

    fn of_float(number: f64) -> Self {
        let bits = number.to_bits();
        let field = i64::try_from(bits >> 52 & 0x7ff).unwrap_or_default();
        let fraction = bits & ((1 << 52) - 1);
        let mantissa = if field == 0 { fraction } else { fraction | 1 << 52 };
        let real = Self::new(number.is_sign_negative(), mantissa.into(), field.max(1) - 1075);
        Self { infinite: !number.is_finite(), ..real }
    }

    fn rounded(mut self, precision: u64) -> Self {
        let extra = self.mantissa.bits().saturating_sub(precision);
        if extra > 0 {
            let half = self.mantissa.bit(extra - 1);
            let more = self.mantissa.trailing_zeros().unwrap_or(0) < extra - 1;
            self.mantissa >>= extra;
            if half && (more || self.mantissa.bit(0)) {
                self.mantissa += 1u8;
            }
            self.exponent += i64::try_from(extra).unwrap_or(i64::MAX);
        }
        let zeros = self.mantissa.trailing_zeros().unwrap_or(0);
        self.mantissa >>= zeros;
        self.exponent += i64::try_from(zeros).unwrap_or(i64::MAX);
        self
    }

    fn times(&self, other: &Self) -> Self {
        let negative = self.negative != other.negative;
        if self.infinite || other.infinite {
            return Self { negative, infinite: true, ..Self::zero() };
        }
        Self::new(negative, &self.mantissa * &other.mantissa, self.exponent + other.exponent)
    }

    fn plus(&self, other: &Self, precision: u64) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |real: &Self| {
            let magnitude = BigInt::from(real.mantissa.clone() << (real.exponent - exponent));
            if real.negative { -magnitude } else { magnitude }
        };
        if self.is_zero() {
            return other.clone().rounded(precision);
        }
        if other.is_zero() {
            return self.clone().rounded(precision);
        }
        let sum = aligned(self) + aligned(other);
        Self::new(sum.sign() == Sign::Minus, sum.magnitude().clone(), exponent).rounded(precision)
    }

    fn negated(mut self) -> Self {
        self.negative = !self.negative && !self.is_zero();
        self
    }

    fn over(&self, other: &Self, precision: u64) -> Result<Self, Raise> {
        if other.is_zero() {
            return Err(Raise::new(Class::ZeroDivision, ""));
        }
        let negative = self.negative != other.negative;
        if self.infinite {
            return Ok(Self { negative, ..self.clone() });
        }
        if other.infinite || self.is_zero() {
            return Ok(Self::zero());
        }
        let shift = precision + other.mantissa.bits() + 5;
        let dividend = &self.mantissa << shift;
        let (quotient, rest) = (&dividend / &other.mantissa, &dividend % &other.mantissa);
        // A sticky bit for the remainder prevents rounding as a half.
        let sticky = BigUint::from(u8::from(rest.bits() > 0));
        let exponent = self.exponent - other.exponent - i64::try_from(shift).unwrap_or(i64::MAX) - 1;
        Ok(Self::new(negative, (quotient << 1) + sticky, exponent).rounded(precision))
    }

    fn ln(&self, precision: u64) -> Self {
        if self.is_zero() || self.infinite {
            return Self { infinite: true, negative: self.is_zero(), ..self.clone() };
        }
        let bits = self.mantissa.bits();
        let digits = precision + GUARD + bits;
        // Scales m to [1, 2]; ln m = 2 artanh((m - 1) / (m + 1)).
        let one = BigUint::from(1u8) << (bits - 1);
        let (above, below) = (&self.mantissa - &one, &self.mantissa + &one);
        let first = artanh(&above, &below, digits) << 1;
        let twos = self.exponent + i64::try_from(bits).unwrap_or(i64::MAX) - 1;
        let ln_2 = artanh(&1u8.into(), &3u8.into(), digits) << 1;
        let total = BigInt::from(first) + BigInt::from(ln_2) * twos;
        let exponent = -i64::try_from(digits).unwrap_or(i64::MAX);
        Self::new(total.sign() == Sign::Minus, total.magnitude().clone(), exponent).rounded(precision)
    }

    fn pi(precision: u64) -> Self {
        let digits = precision + GUARD;
        let arctan = |divisor: u32| {
            let (mut power, mut sum) = ((BigInt::from(1) << digits) / divisor, BigInt::default());
            let mut place = 0u32;
            while power.sign() != Sign::NoSign {
                let term: BigInt = &power / (2 * place + 1);
                if place.is_multiple_of(2) {
                    sum += term;
                } else {
                    sum -= term;
                }
                power /= divisor * divisor;
                place += 1;
            }
            sum
        };
        let pi: BigInt = arctan(5) * 16 - arctan(239) * 4;
        let exponent = -i64::try_from(digits).unwrap_or(i64::MAX);
        Self::new(false, pi.magnitude().clone(), exponent).rounded(precision)
    }

    /// `mpmath`'s `repr`
    fn text(&self, digits: usize) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.infinite {
            return format!("{sign}inf");
        }
        if self.is_zero() {
            return "0.0".to_owned();
        }
        let (mut written, mut exponent) = self.decimal(digits + 10);
        if round_text(&mut written, digits) {
            exponent += 1;
        }
        let least = -i64::try_from(digits / 3).unwrap_or(0).max(5);
        let most = i64::try_from(digits).unwrap_or(i64::MAX);
        let mut split = 1;
        let mut shown = exponent;
        if least < exponent && exponent < most {
            if exponent < 0 {
                let zeros = usize::try_from(-exponent).unwrap_or(0);
                written.insert_str(0, &"0".repeat(zeros));
            } else {
                split = usize::try_from(exponent).unwrap_or(0) + 1;
                if split > written.len() {
                    written.push_str(&"0".repeat(split - written.len()));
                }
            }
            shown = 0;
        }
        let (whole, fraction) = written.split_at(split.min(written.len()));
        let fraction = fraction.trim_end_matches('0');
        let fraction = if fraction.is_empty() { "0" } else { fraction };
        let tail = if shown == 0 { String::new() } else { format!("e{shown:+}") };
        format!("{sign}{whole}.{fraction}{tail}")
    }

    /// Returns the first `digits` decimal digits, truncated rather than rounded, and the decimal
    /// exponent.
    fn decimal(&self, digits: usize) -> (String, i64) {
        let bits = i64::try_from(self.mantissa.bits()).unwrap_or(i64::MAX) + self.exponent;
        // Enough decimals for numbers of any size.
        let wanted = i64::try_from(digits).unwrap_or(i64::MAX) + 3;
        let places = (wanted - (bits as f64 / BITS) as i64).max(0);
        let ten = BigUint::from(10u8).pow(u32::try_from(places).unwrap_or(u32::MAX));
        let scaled = &self.mantissa * ten;
        let whole =
            if self.exponent < 0 { scaled >> self.exponent.unsigned_abs() } else { scaled << self.exponent };
        let mut written = whole.to_string();
        let exponent = i64::try_from(written.len()).unwrap_or(i64::MAX) - 1 - places;
        written.truncate(digits);
        while written.len() < digits {
            written.push('0');
        }
        (written, exponent)
    }
}

/// Rounds a decimal number to `digits` digits, half to even. Returns true if the rounding carries
/// into a new first digit, as in `999` to `100`.
fn round_text(written: &mut String, digits: usize) -> bool {
    let bytes = written.as_bytes();
    let tie = bytes[digits] == b'5' && bytes[digits + 1..].iter().all(|byte| *byte == b'0');
    let odd = digits > 0 && (bytes[digits - 1] - b'0') % 2 == 1;
    let up = bytes[digits] >= b'5' && (!tie || odd);
    written.truncate(digits);
    if !up {
        return false;
    }
    let Some(place) = written.rfind(|digit| digit != '9') else {
        *written = format!("1{}", "0".repeat(digits.saturating_sub(1)));
        return true;
    };
    let next = char::from(written.as_bytes()[place] + 1);
    written.truncate(place);
    written.push(next);
    written.push_str(&"0".repeat(digits - place - 1));
    false
}

fn artanh(numerator: &BigUint, denominator: &BigUint, digits: u64) -> BigUint {
    let mut power = (numerator << digits) / denominator;
    let square = (&power * &power) >> digits;
    let mut sum = power.clone();
    let mut place = 3u32;
    while power.bits() > 0 {
        power = (&power * &square) >> digits;
        sum += &power / place;
        place += 2;
    }
    sum
}

fn too_precise() -> Raise {
    Raise::value_error(format!("precision must be at most {MOST_DIGITS} digits"))
}

/// Matches `mpmath`.
pub(super) fn logarithm(value: &Value, base: &Value, precision: &Value) -> Result<Value, Raise> {
    let digits = match int_of(precision)? {
        Value::Int(digits) if digits <= MOST_DIGITS => digits,
        _ => return Err(too_precise()),
    };
    let bits = ((digits.saturating_add(1)) as f64 * BITS).round_ties_even().max(1.0);
    let precision = bits as u64;
    // `repr` shows three more digits than are certain.
    let certain = ((bits / BITS).round_ties_even() as usize).saturating_sub(1).max(1);
    let shown = if certain == 15 { 17 } else { certain + 3 };
    let value = Real::of(value, precision)?;
    let numerator = value.ln(precision);
    let base = Real::of(base, precision)?;
    let denominator = base.ln(precision);
    let is_complex = |real: &Real| real.negative && !real.is_zero();
    if !is_complex(&value) && !is_complex(&base) {
        let text = numerator.over(&denominator, precision)?.text(shown);
        return Ok(Value::Opaque { class: "mpf", repr: format!("mpf('{text}')") });
    }
    let pi = Real::pi(precision);
    let work = precision + 10;
    let (real, imaginary) = if is_complex(&base) {
        let size = denominator.times(&denominator).plus(&pi.times(&pi), work);
        if is_complex(&value) {
            let real = numerator.times(&denominator).plus(&pi.times(&pi), work);
            let imaginary = pi.times(&denominator).plus(&numerator.times(&pi).negated(), work);
            (real.over(&size, precision)?, imaginary.over(&size, precision)?)
        } else {
            let real = denominator.times(&numerator).over(&size, precision)?;
            (real, pi.times(&numerator).negated().over(&size, precision)?)
        }
    } else {
        (numerator.over(&denominator, precision)?, pi.over(&denominator, precision)?)
    };
    let [real, imaginary] = [real, imaginary].map(|part| part.text(shown));
    Ok(Value::Opaque { class: "mpc", repr: format!("mpc(real='{real}', imag='{imaginary}')") })
}

/// Matches `decimal`.
pub(super) fn square_root(number: &Value, precision: &Value) -> Result<Value, Raise> {
    let invalid = || error("Input must be a number or computation resulted in an invalid operation");
    let Ok(is_negative) = compare(Order::Less, number, &Value::Int(0)) else { return Ok(invalid()) };
    if is_negative {
        return Ok(error("Cannot calculate square root of a negative number"));
    }
    let digits = match precision {
        Value::Int(digits) => *digits,
        Value::Bool(digits) => i64::from(*digits),
        Value::Big(_) => MOST_DIGITS + 1,
        _ => return Ok(invalid()),
    };
    let Ok(digits @ 1..) = u64::try_from(digits) else {
        return Err(Raise::value_error("valid range for prec is [1, MAX_PREC]"));
    };
    if digits > MOST_DIGITS.unsigned_abs() {
        return Err(too_precise());
    }
    // Integer and power of ten.
    let (whole, exponent): (BigUint, i64) = match number {
        Value::Float(number) if number.is_nan() => return Ok(decimal("NaN")),
        Value::Float(number) if number.is_infinite() => return Ok(decimal("Infinity")),
        Value::Float(number) => {
            let real = Real::of_float(*number).rounded(53);
            if real.exponent >= 0 {
                (real.mantissa << real.exponent, 0)
            } else {
                let places = u32::try_from(-real.exponent).unwrap_or(u32::MAX);
                (real.mantissa * BigUint::from(5u8).pow(places), real.exponent)
            }
        }
        _ => (Real::of(number, 0)?.mantissa, 0),
    };
    if whole.bits() == 0 {
        return Ok(decimal("0"));
    }
    Ok(decimal(&root(whole, exponent, digits)))
}

fn decimal(text: &str) -> Value {
    dict([("result", Value::Opaque { class: "decimal.Decimal", repr: format!("Decimal('{text}')") })])
}

/// Returns the square root of `whole * 10^exponent`.
fn root(whole: BigUint, exponent: i64, digits: u64) -> String {
    let ten = BigUint::from(10u8);
    let power = |places: i64| ten.pow(u32::try_from(places.unsigned_abs()).unwrap_or(u32::MAX));
    let length = i64::try_from(whole.to_string().len()).unwrap_or(i64::MAX);
    let (mut scaled, half) =
        if exponent % 2 == 0 { (whole, (length + 1) >> 1) } else { (whole * 10u8, (length >> 1) + 1) };
    let mut exponent = exponent >> 1;
    let shift = i64::try_from(digits).unwrap_or(i64::MAX) + 1 - half;
    let mut exact = true;
    if shift >= 0 {
        scaled *= power(2 * shift);
    } else {
        let unit = power(2 * shift);
        exact = (&scaled % &unit).bits() == 0;
        scaled /= unit;
    }
    exponent -= shift;
    let mut found = scaled.sqrt();
    exact &= &found * &found == scaled;
    if exact {
        if shift >= 0 {
            found /= power(shift);
        } else {
            found *= power(shift);
        }
        exponent += shift;
    } else if (&found % 5u8).bits() == 0 {
        // Prevents rounding as a half.
        found += 1u8;
    }
    let mut written = found.to_string();
    let most = usize::try_from(digits).unwrap_or(usize::MAX);
    if written.len() > most {
        exponent += i64::try_from(written.len() - most).unwrap_or(0);
        written.push('0');
        if round_text(&mut written, most) {
            exponent += 1;
        }
    }
    let length = i64::try_from(written.len()).unwrap_or(i64::MAX);
    let left = exponent + length;
    if exponent <= 0 && left > -6 {
        match usize::try_from(left) {
            Ok(left @ 1..) if left == written.len() => written,
            Ok(left @ 1..) => format!("{}.{}", &written[..left], &written[left..]),
            _ => format!("0.{}{written}", "0".repeat(usize::try_from(-left).unwrap_or(0))),
        }
    } else {
        let point = if written.len() > 1 { "." } else { "" };
        format!("{}{point}{}E{:+}", &written[..1], &written[1..], left - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(result: Result<Value, Raise>) -> String {
        match result {
            Ok(value) => value.repr(),
            Err(raise) => format!("{:?}: {}", raise.class, raise.text),
        }
    }

    /// Computed with `mpmath` 1.4.1.
    #[test]
    fn logarithms_are_those_of_mpmath() {
        let log = |value: Value, base: i64, digits: i64| {
            shown(logarithm(&value, &Value::Int(base), &Value::Int(digits)))
        };
        assert_eq!(log(20i64.into(), 10, 2), "mpf('1.3027')");
        assert_eq!(log(980.0.into(), 20, 10), "mpf('2.299121531134')");
        assert_eq!(log(3287.0.into(), 6, 4), "mpf('4.51947')");
        assert_eq!(log(630.0.into(), -1, 5), "mpc(real='0.0', imag='-2.0517349')");
        assert_eq!(log(0i64.into(), 20, 10), "mpf('-inf')");
        assert_eq!(log(5i64.into(), 1, 10), "ZeroDivision: ");
        assert_eq!(log("x".into(), 2, 10), "Type: cannot create mpf from 'x'");
        assert!(log(5i64.into(), 2, 1_000_000_000).contains("at most 2000 digits"));
    }

    /// Computed with `decimal`.
    #[test]
    fn roots_are_those_of_decimal() {
        let root = |number: Value, digits: i64| shown(square_root(&number, &Value::Int(digits)));
        assert_eq!(root(2i64.into(), 5), "{'result': Decimal('1.4142')}");
        assert_eq!(root(2.25.into(), 5), "{'result': Decimal('1.5')}");
        assert_eq!(root(10_000_000_000i64.into(), 1), "{'result': Decimal('1E+5')}");
        assert_eq!(root(1e-300.into(), 14), "{'result': Decimal('1.0000000000000E-150')}");
        assert_eq!(root(0i64.into(), 3), "{'result': Decimal('0')}");
        assert_eq!(root(2i64.into(), 0), "Value: valid range for prec is [1, MAX_PREC]");
    }
}
