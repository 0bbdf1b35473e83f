//! Formulas and their evaluation, which gives the same results as Python's `eval`.

/// Symbol of a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// From 1 to 10.
    Number(u8),
    /// `+`
    Plus,
    /// `*`
    Times,
}

const NUMBERS: [&str; 10] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];

impl Symbol {
    /// Returns the symbol's text, which is empty for numbers outside 1 to 10.
    pub fn text(self) -> &'static str {
        match self {
            Self::Number(number) => {
                usize::from(number).checked_sub(1).and_then(|place| NUMBERS.get(place)).unwrap_or(&"")
            }
            Self::Plus => "+",
            Self::Times => "*",
        }
    }
}

/// Joins symbols without spaces, like gym-cards: adjacent digits form one number, and `**` is a
/// power.
pub fn text(symbols: &[Symbol]) -> String {
    joined(symbols, "")
}

pub(super) fn joined(symbols: &[Symbol], between: &str) -> String {
    let mut out = String::with_capacity(symbols.len() * (2 + between.len()));
    for (index, symbol) in symbols.iter().enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        out.push_str(symbol.text());
    }
    out
}

/// Evaluates a formula of digits, `+` and `*` like Python's `eval`. Returns `None` if Python raises
/// an exception or the value needs more than 127 bits.
///
/// Several `+` may precede an operand (`4+++8` and `2*+6` are 12). `**` is right-associative and
/// binds tighter than a preceding `+` (`+2**+3` is 8).
pub fn eval(text: &str) -> Option<i128> {
    let mut parser = Parser { rest: text };
    let value = parser.sum()?;
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn take(&mut self, token: &str) -> bool {
        self.rest.strip_prefix(token).inspect(|rest| self.rest = rest).is_some()
    }

    /// `product ("+" product)*`
    fn sum(&mut self) -> Option<i128> {
        let mut value = self.product()?;
        while self.take("+") {
            value = value.checked_add(self.product()?)?;
        }
        Some(value)
    }

    /// `factor ("*" factor)*`
    fn product(&mut self) -> Option<i128> {
        let mut value = self.factor()?;
        while !self.rest.starts_with("**") && self.take("*") {
            value = value.checked_mul(self.factor()?)?;
        }
        Some(value)
    }

    /// `"+"* power`
    fn factor(&mut self) -> Option<i128> {
        while self.take("+") {}
        self.power()
    }

    /// `number ["**" factor]`
    fn power(&mut self) -> Option<i128> {
        let base = self.number()?;
        if !self.take("**") {
            return Some(base);
        }
        base.checked_pow(u32::try_from(self.factor()?).ok()?)
    }

    fn number(&mut self) -> Option<i128> {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        // Python allows leading zeros only if all digits are 0.
        if digits.len() > 1 && digits.starts_with('0') && digits.bytes().any(|digit| digit != b'0') {
            return None;
        }
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_what_python_makes_of_them() {
        // From CPython 3.12; `None` if it raises.
        for (text, expected) in [
            ("10+2", Some(12)),
            ("4+++8", Some(12)),
            ("2*+6", Some(12)),
            ("++4", Some(4)),
            ("75", Some(75)),
            ("102", Some(102)),
            ("2**3", Some(8)),
            ("2**+3", Some(8)),
            ("+2**3*2", Some(16)),
            ("2*3**2", Some(18)),
            ("2**3**2", Some(512)),
            ("1+2*3", Some(7)),
            ("10**10", Some(10_000_000_000)),
            ("", None),
            ("+", None),
            ("*6", None),
            ("4+", None),
            ("3+*4", None),
            ("3***4", None),
            ("3****4", None),
            ("+8*+4*", None),
            ("+*4", None),
            ("0", Some(0)),
            ("00", Some(0)),
            ("01", None),
        ] {
            assert_eq!(eval(text), expected, "{text}");
        }
        assert_eq!(eval("10**99"), None);
        assert_eq!(text(&[Symbol::Number(10), Symbol::Plus, Symbol::Number(2)]), "10+2");
        assert_eq!(joined(&[Symbol::Number(3), Symbol::Times], " "), "3 *");
    }
}
