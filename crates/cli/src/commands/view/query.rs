//! A page's URL query, which links preserve: search, filter, sort order, page, smoothing, colours.

use std::fmt::Write as _;

use crate::commands::pages::html::escape;

const KEYS: [&str; 7] = ["q", "show", "sort", "page", "smooth", "color", "before"];

const LONGEST: usize = 200;

/// Values of the query's [`KEYS`], in their order; other keys are dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Query([String; KEYS.len()]);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for pair in text.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let Some(at) = KEYS.iter().position(|known| *known == key) {
                query.0[at] = decoded(&value.replace('+', " ")).chars().take(LONGEST).collect();
            }
        }
        query
    }

    pub(super) fn get(&self, key: &str) -> &str {
        KEYS.iter().position(|known| *known == key).map_or("", |at| self.0[at].trim())
    }

    pub(super) fn number(&self, key: &str, default: usize) -> usize {
        self.get(key).parse().unwrap_or(default)
    }

    pub(super) fn with(&self, changes: &[(&str, &str)]) -> Self {
        let mut query = self.clone();
        for (key, value) in changes {
            if let Some(at) = KEYS.iter().position(|known| known == key) {
                (*value).clone_into(&mut query.0[at]);
            }
        }
        query
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (key, value) in KEYS.iter().zip(&self.0).filter(|(_, value)| !value.is_empty()) {
            let sign = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{sign}{key}={}", encoded(value));
        }
        text
    }

    /// Returns hidden form fields for all non-empty values except those of the keys in `without`.
    pub(super) fn hidden(&self, without: &[&str]) -> String {
        let mut fields = String::new();
        for (key, value) in KEYS.iter().zip(&self.0) {
            if !value.is_empty() && !without.contains(key) {
                let _ = write!(fields, "<input type=\"hidden\" name=\"{key}\" value=\"{}\">", escape(value));
            }
        }
        fields
    }
}

#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Prefix of the page's links: `/run/NAME` in a folder of runs, otherwise empty.
    pub(super) base: &'a str,
    pub(super) query: &'a Query,
}

impl Place<'_> {
    pub(super) fn link(&self, path: &str, changes: &[(&str, &str)]) -> String {
        escape(&self.address(path, changes))
    }

    pub(super) fn address(&self, path: &str, changes: &[(&str, &str)]) -> String {
        let path = if path == "/" && !self.base.is_empty() { "" } else { path };
        format!("{}{path}{}", self.base, self.query.with(changes).text())
    }
}

pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Percent-decodes text; invalid UTF-8 becomes U+FFFD.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_what_is_set_and_change_what_is_named() {
        let query = Query::parse("q=a+%3Cb%3E%26&sort=change&evil=1&page=3");
        assert_eq!((query.get("q"), query.get("show"), query.number("page", 1)), ("a <b>&", "", 3));
        let place = Place { base: "/run/a%2Fb", query: &query };
        let link = place.link("/step/1", &[("page", ""), ("show", "mixed")]);
        assert_eq!(link, "/run/a%2Fb/step/1?q=a%20%3Cb%3E%26&amp;show=mixed&amp;sort=change");
        assert_eq!(place.link("/", &[("q", ""), ("sort", ""), ("page", "")]), "/run/a%2Fb");
        assert_eq!(
            query.hidden(&["sort", "page"]),
            "<input type=\"hidden\" name=\"q\" value=\"a &lt;b&gt;&amp;\">"
        );
    }

    #[test]
    fn broken_escapes_stay_text() {
        for (text, expected) in
            [("%zz%4", "%zz%4"), ("%41%", "A%"), ("%ff", "\u{fffd}"), ("é%2F", "é/"), ("%+1", "%+1")]
        {
            assert_eq!(decoded(text), expected);
        }
        assert_eq!(decoded(&encoded("a/../b?x=ü")), "a/../b?x=ü");
    }
}
