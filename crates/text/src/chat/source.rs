//! Rewrites the source of a template before it is compiled.

use super::expression::{Edit, Scanned, in_word, scanned};
use super::limits::{CHECK, COUNT};

/// Minimum bytes of a counted text.
const LONG: usize = 128;
/// Maximum operators and the like in a tag, and maximum `elif` tags. `minijinja` compiles each of
/// them one level deeper.
const MOST_LINKS: usize = 5000;

/// Rewrites a template:
///
/// * `\r\n` and `\r` become `\n`, as in Python's Jinja.
/// * `{% generation %}` tags become `{% if true %}` and `endif`.
/// * Operators whose work depends on the lengths of texts and lists become filters with limits
///   ([`scanned`]).
/// * Slices with a step (`[::-1]`) become method calls, because `minijinja`'s slices are wrong for
///   negative steps and panic for empty lists.
/// * A check ([`CHECK`]) follows each tag that sets variables, because stored values can grow only
///   there: `set`, `with`, `for`, and the starts of macros and `call` blocks with arguments.
/// * A count ([`COUNT`]) precedes long texts between tags, because `set` blocks, macros and
///   recursive loops can store them.
///
/// # Errors
/// Returns the reason if an expression or a sequence of `elif` is too long to compile.
pub(super) fn rewritten(source: &str) -> Result<String, String> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    let mut captured = Vec::new();
    // The place of a check at the end of the last statement, and the bytes of text since then.
    let (mut place, mut texts) = (None, 0);
    let (mut links, mut branches) = (0, 0);
    while let Some((at, close)) = next_tag(rest) {
        let (before, tag) = rest.split_at(at + 2);
        let statement = close == "%}" && !is_raw(tag);
        texts += at;
        if statement {
            count(place, texts, &mut out);
            texts = 0;
        }
        out.push_str(before);
        rest = match close {
            "#}" => copied(tag, tag.find(close).map_or(tag.len(), |end| end + 2), &mut out),
            "%}" if statement => {
                let from = out.len();
                branches += usize::from(tag.trim_start_matches(['-', '+']).trim_start().starts_with("elif"));
                let rest = expression(generation(tag, &mut out), close, &mut links, &mut out);
                let (rest, end) = checked(rest, from, &mut captured, &mut out);
                place = end;
                rest
            }
            "%}" => {
                let length = raw_length(tag);
                texts += length;
                copied(tag, length, &mut out)
            }
            _ => {
                let rest = expression(tag, close, &mut links, &mut out);
                if rest.starts_with(close) { copied(rest, close.len(), &mut out) } else { rest }
            }
        };
    }
    count(place, texts + rest.len(), &mut out);
    out.push_str(rest);
    for (found, what) in [(links, "operators, calls and filters in one tag"), (branches, "`elif` tags")] {
        if found > MOST_LINKS {
            return Err(format!("it has {found} {what}; at most {MOST_LINKS} are supported"));
        }
    }
    Ok(out)
}

fn copied<'a>(text: &'a str, length: usize, out: &mut String) -> &'a str {
    let (before, after) = text.split_at(length);
    out.push_str(before);
    after
}

fn is_tag(tag: &str, word: &str) -> bool {
    let rest = tag.strip_prefix(['-', '+']).unwrap_or(tag).trim_start();
    rest.strip_prefix(word).is_some_and(|rest| {
        let rest = rest.trim_start();
        rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with("%}")
    })
}

fn is_raw(tag: &str) -> bool {
    is_tag(tag, "raw")
}

fn raw_length(tag: &str) -> usize {
    let end = tag.match_indices("{%").find(|(at, open)| is_tag(&tag[at + open.len()..], "endraw"));
    end.map_or(tag.len(), |(at, open)| at + open.len())
}

fn next_tag(text: &str) -> Option<(usize, &'static str)> {
    text.match_indices('{').find_map(|(at, _)| match text.as_bytes().get(at + 1)? {
        b'{' => Some((at, "}}")),
        b'%' => Some((at, "%}")),
        b'#' => Some((at, "#}")),
        _ => None,
    })
}

/// Copies the start of a tag up to and including `generation` or `endgeneration` in rewritten form;
/// returns the rest.
fn generation<'a>(tag: &'a str, out: &mut String) -> &'a str {
    let word = tag.trim_start_matches(['-', '+']).trim_start();
    for (name, stands_for) in [("generation", "if true"), ("endgeneration", "endif")] {
        let closes = |after: &str| after.trim_start().trim_start_matches(['-', '+']).starts_with("%}");
        if let Some(after) = word.strip_prefix(name).filter(|after| closes(after)) {
            out.push_str(&tag[..tag.len() - word.len()]);
            out.push_str(stands_for);
            return after;
        }
    }
    tag
}

/// Copies a tag up to `close` in rewritten form; returns the rest. `most` is the maximum number of
/// links in a tag.
fn expression<'a>(tag: &'a str, close: &str, most: &mut usize, out: &mut String) -> &'a str {
    let Scanned { edits, end, links } = scanned(tag, close, close == "%}");
    *most = links.max(*most);
    let mut done = 0;
    for Edit { at, removed, text } in edits {
        out.push_str(tag.get(done..at).unwrap_or_default());
        out.push_str(&text);
        done = at + removed;
    }
    out.push_str(&tag[done..end]);
    &tag[end..]
}

/// Copies the end (`%}`) of the tag that starts at `from` in `out`, and then adds a check of the
/// variables that the tag sets. Returns the rest and the place of another check. `captured` lists
/// the variables of open `set` blocks.
fn checked<'a>(
    rest: &'a str,
    from: usize,
    captured: &mut Vec<String>,
    out: &mut String,
) -> (&'a str, Option<usize>) {
    let Some(after) = rest.strip_prefix("%}") else { return (rest, None) };
    let names = names_set(&out[from..], captured);
    let mut place = out.len() - usize::from(out[from..].ends_with(['-', '+']));
    out.push_str("%}");
    if let Some(names) = names {
        place += insert_check(place, &format!("[{names}]|{CHECK}"), out);
    }
    (after, Some(place))
}

/// Inserts a check before the end of a tag. The check takes over the tag's trimming of white space.
/// Returns the check's length.
fn insert_check(place: usize, check: &str, out: &mut String) -> usize {
    let check = format!("%}}{{% if {check} %}}{{% endif ");
    out.insert_str(place, &check);
    check.len()
}

fn count(place: Option<usize>, texts: usize, out: &mut String) {
    if let Some(place) = place.filter(|_| texts >= LONG) {
        insert_check(place, &format!("{texts}|{COUNT}"), out);
    }
}

fn names_set(tag: &str, captured: &mut Vec<String>) -> Option<String> {
    let tag = tag.strip_prefix(['-', '+']).unwrap_or(tag);
    let tag = tag.strip_suffix(['-', '+']).unwrap_or(tag).trim();
    let (word, inside) = tag.split_at(tag.find(|letter: char| !in_word(letter)).unwrap_or(tag.len()));
    let plain = |names: &str| {
        let names = names.replace(['(', ')'], " ");
        let letters = |letter: char| in_word(letter) || "., \t\n".contains(letter);
        (!names.trim().is_empty() && names.chars().all(letters)).then(|| names.trim().to_owned())
    };
    match word {
        "set" => {
            let names = inside.split_once('=').and_then(|(names, _)| plain(names));
            if names.is_none() {
                // A `set` block, whose variable may have filters, ends at `endset`.
                captured.push(inside.split('|').next().unwrap_or_default().to_owned());
            }
            names
        }
        "endset" => plain(&captured.pop()?),
        "for" => plain(targets(inside)?),
        "with" => plain(&parameters(inside)),
        "macro" => plain(&parameters(inside.split_once('(')?.1)),
        "call" => plain(&parameters(inside.trim_start().strip_prefix('(')?)),
        _ => None,
    }
}

/// Returns the part of a `for` tag before `in`.
fn targets(inside: &str) -> Option<&str> {
    let mut places = inside.match_indices("in");
    let (at, _) = places.find(|&(at, word)| {
        !inside[..at].ends_with(in_word) && !inside[at + word.len()..].starts_with(in_word)
    })?;
    Some(&inside[..at])
}

fn parameters(text: &str) -> String {
    let (mut names, mut depth, mut quote, mut named) = (String::new(), 0, None, true);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => drop(characters.next()),
            (Some(begin), _) => quote = quote.filter(|_| character != begin),
            (None, '\'' | '"') => quote = Some(character),
            (None, ')') if depth == 0 => break,
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, '=') if depth == 0 => named = false,
            (None, ',') if depth == 0 => {
                named = true;
                names.push(',');
            }
            (None, _) if named => names.push(character),
            (None, _) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{CHECK, COUNT, LONG};
    use crate::chat::expression::{PLUS, SLICE, SLICED};

    fn rewritten(source: &str) -> String {
        super::rewritten(source).unwrap()
    }

    #[test]
    fn generation_tags_become_blocks_that_do_nothing() {
        for (source, expected) in [
            ("{%- generation -%} a {%- endgeneration %}", "{%- if true -%} a {%- endif %}"),
            ("{%  generation%} {% x", "{%  if true%} {% x"),
            ("{# {% generation %} #}generation", "{# {% generation %} #}generation"),
        ] {
            assert_eq!(rewritten(source), expected);
        }
    }

    #[test]
    fn what_is_set_is_checked_behind_its_tag() {
        let check = |names: &str, end: &str| format!("%}}{{% if [{names}]|{CHECK} %}}{{% endif {end}%}}");
        for (source, names, end) in [
            ("{% set generation = 1 %} a", "generation", ""),
            ("{%- set ns.x = ns.x|f('%}') -%} a", "ns.x", "-"),
            ("{%set a, b = f(c=1) +%} a", "a, b", "+"),
            ("{% set (a, b) = c %} a", "a, b", ""),
            ("{% set(a, b) = c %} a", "a, b", ""),
            ("{% set (a, (b, c)) = d %} a", "a,  b, c", ""),
            ("{% with a = 'b\\', c', d = e(f=1) -%} a", "a , d", "-"),
            ("{%- for inner, b in c if d is in [1] recursive +%} a", "inner, b", "+"),
            ("{% for (a, b)in c %} a", "a, b", ""),
            ("{%call(a, b=1) f(c) %} a", "a, b", ""),
            ("{% set x = 1 == b %} a", "x", ""),
            ("{% macro f(a, b=['x, )', 1], c) -%} a", "a, b, c", "-"),
            ("{% set x | replace('=', 'y') %}y{% endset %} a", "x", ""),
            ("{% set x %}{% set y %}{% endset %}{% endset %} a", "x", ""),
        ] {
            let found = rewritten(source);
            let expected = format!("{} a", check(names, end));
            assert!(found.ends_with(&expected), "{found}");
            let plain =
                found.replace(&check(names, end), &format!("{end}%}}")).replace(&check("y", ""), "%}");
            assert_eq!(plain, source);
        }
        for source in [
            "{% settle = 1 %}",
            "{% macro f() %}",
            "{% call f(x=1) %}",
            "{% with %}",
            "{% format in x %}",
            "{% endset %}",
            "{% set x = 1",
            "{{ set x = 1 }}",
        ] {
            assert_eq!(rewritten(source), source);
        }
    }

    #[test]
    fn long_texts_are_counted_behind_the_tag_before_them() {
        let text = "a".repeat(LONG);
        let check = |length: usize| format!("%}}{{% if {length}|{COUNT} %}}{{% endif ");
        let (exact, more) = (check(LONG), check(LONG + 1));
        for (source, expected) in [
            (
                format!("{text}{{% if b-%}}{text}{{% endif %}}{text}"),
                format!("{text}{{% if b{exact}-%}}{text}{{% endif {exact}%}}{text}"),
            ),
            (
                format!("{{% else %}}a{{# {text} #}}{{{{ b }}}}{text}{{% if c %}}"),
                format!("{{% else {more}%}}a{{# {text} #}}{{{{ b }}}}{text}{{% if c %}}"),
            ),
        ] {
            assert_eq!(rewritten(&source), expected);
        }
        let raw = format!("{{% if b +%}}{{% raw %}}{text}{{% endraw %}}");
        assert!(rewritten(&raw).contains(&format!("|{COUNT} %}}{{% endif +%}}{{% raw %}}")));
        let short = format!("{{% if b %}}{}{{% endif %}}", "a".repeat(LONG - 1));
        assert_eq!(rewritten(&short), short);
    }

    fn called(text: &str) -> String {
        let text = text.replace("S(", &format!("{SLICE}(")).replace(".T(", &format!(".{SLICED}("));
        text.replace("|P(", &format!("|{PLUS}("))
    }

    #[test]
    fn slices_are_rewritten_outside_of_texts() {
        for (source, expected) in [
            (
                "{% if messages[::-1] %}é[::-1]{{ a[ : :-1 ]+b[::-1][0] }}",
                "{% if messages.S(none,none,-1) %}é[::-1]{{ a.S(none ,none ,-1 )|P(b.S(none,none,-1)[0]) }}",
            ),
            (
                "{{ '[::-1]'+\"\\\"[::-1]\"+x[1:c[::2]|length:] }}",
                "{{ '[::-1]'|P(\"\\\"[::-1]\")|P(x.S(1,c.S(none,none,2)|length,none)) }}",
            ),
            ("{{ '}}'+é[::-1] }} {{ open", "{{ '}}'|P(é.S(none,none,-1)) }} {{ open"),
            (
                "{{ [a[1:], a[:2], a[b], [{'c': 1, 'd': 2}]] }}",
                "{{ [a.T()[1:], a.T()[:2], a[b], [{'c': 1, 'd': 2}]] }}",
            ),
            (
                "{{ {'a': {'b': 1}} }}{{ {'a': {'b': c[::-1]}}['a'] }}[::-1]",
                "{{ {'a': {'b': 1}} }}{{ {'a': {'b': c.S(none,none,-1)}}['a'] }}[::-1]",
            ),
        ] {
            assert_eq!(rewritten(source), called(expected));
        }
    }

    #[test]
    fn what_is_raw_stays() {
        let (slice, call) = ("{{ x[::-1] }}", called("{{ x.S(none,none,-1) }}"));
        for raw in [
            "{% raw %}{{ x[::-1] }}{% generation %}{% endraw %}",
            "{%-  raw-%}{# {{ x[::-1] }} {% %}{%+ endraw -%}",
        ] {
            assert_eq!(rewritten(&format!("{slice}{raw}{slice}")), format!("{call}{raw}{call}"));
        }
        let open = format!("{{% raw %}}{slice}{{% open");
        assert_eq!(rewritten(&open), open);
        assert_eq!(rewritten("{% rawness x[::-1] %}"), called("{% rawness x.S(none,none,-1) %}"));
    }

    #[test]
    fn line_breaks_are_those_of_jinja() {
        assert_eq!(rewritten("a\r\n{{ x }}\rb\n\r\n{# \r\n #}"), "a\n{{ x }}\nb\n\n{# \n #}");
    }
}
