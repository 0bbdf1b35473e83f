//! Rewriting of a template's source before it is compiled.

/// Method that stands for a slice with a step in a rewritten template.
pub(super) const SLICE: &str = "turnwise_slice";

/// The template without what this Jinja does not know or cannot do:
///
/// * Line breaks of other systems become `\n`, as Jinja in Python has them before it reads a template.
/// * The tags that mark the model's words in training templates do nothing here: `{% generation %}` becomes
///   `{% if true %}` and its end an `endif`, with the same trimming of white space.
/// * Slices with a step, such as `[::-1]`, become calls of the method [`SLICE`], because the library's own go wrong backwards
///   (and panic for empty lists). A method may stand wherever a slice may, which a filter may not.
pub(super) fn rewritten(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some((at, close)) = next_tag(rest) {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = match close {
            "#}" => copied(tag, tag.find(close).map_or(tag.len(), |end| end + 2), &mut out),
            "%}" if is_raw(tag) => copied(tag, raw_length(tag), &mut out),
            "%}" => expression(generation(tag, &mut out), close, &mut out),
            _ => expression(tag, close, &mut out),
        };
    }
    out.push_str(rest);
    out
}

/// Copies this many bytes of a text; returns the rest.
fn copied<'a>(text: &'a str, length: usize, out: &mut String) -> &'a str {
    let (before, after) = text.split_at(length);
    out.push_str(before);
    after
}

/// Returns true if a block tag, from behind its opening, is just this word.
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

/// Returns the bytes of a `raw` block from behind its opening up to the opening of its end: what stands
/// in it is not a program.
fn raw_length(tag: &str) -> usize {
    let end = tag.match_indices("{%").find(|(at, open)| is_tag(&tag[at + open.len()..], "endraw"));
    end.map_or(tag.len(), |(at, open)| at + open.len())
}

/// Returns the start of the next tag, and its closing.
fn next_tag(text: &str) -> Option<(usize, &'static str)> {
    let tags = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
    tags.iter().filter_map(|(open, close)| Some((text.find(open)?, *close))).min()
}

/// Copies the start of a block tag as far as it is `generation` or `endgeneration`; returns what comes after.
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

/// Copies a tag up to its end, slices rewritten; returns what comes after.
fn expression<'a>(tag: &'a str, close: &str, out: &mut String) -> &'a str {
    let (edits, end) = slices(tag, close);
    let mut done = 0;
    for (at, instead) in edits {
        out.push_str(&tag[done..at]);
        out.push_str(&instead);
        done = at + 1;
    }
    out.push_str(&tag[done..end]);
    &tag[end..]
}

/// A bracket that is open, where it was opened, and the colons in it and in no other.
struct Bracket {
    character: char,
    at: usize,
    colons: Vec<usize>,
}

/// Edits that make calls of the slices with a step in a tag (texts instead of single bytes, in order),
/// and the tag's end.
fn slices(tag: &str, close: &str) -> (Vec<(usize, String)>, usize) {
    let mut edits = Vec::new();
    let mut open: Vec<Bracket> = Vec::new();
    let mut quote = None;
    let mut end = tag.len();
    let mut characters = tag.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            // What is escaped cannot end a text.
            (Some(_), '\\') => drop(characters.next()),
            (Some(begin), _) => quote = quote.filter(|_| character != begin),
            // `}}` in a bracket ends two objects and no tag.
            (None, _) if open.is_empty() && tag[at..].starts_with(close) => {
                end = at;
                break;
            }
            (None, '\'' | '"') => quote = Some(character),
            (None, '(' | '[' | '{') => open.push(Bracket { character, at, colons: Vec::new() }),
            (None, ':') => open.iter_mut().next_back().into_iter().for_each(|last| last.colons.push(at)),
            (None, ')' | ']' | '}') => {
                if let Some(Bracket { character: '[', at: start, colons }) = open.pop()
                    && let [first, second] = colons[..]
                {
                    let part = |from: usize, to: usize| {
                        if tag[from + 1..to].trim().is_empty() { "none" } else { "" }
                    };
                    edits.push((start, format!(".{SLICE}({}", part(start, first))));
                    edits.push((first, format!(",{}", part(first, second))));
                    edits.push((second, format!(",{}", part(second, at))));
                    edits.push((at, ")".to_owned()));
                }
            }
            (None, _) => {}
        }
    }
    edits.sort_unstable();
    (edits, end)
}

#[cfg(test)]
mod tests {
    use super::{SLICE, rewritten};

    #[test]
    fn generation_tags_become_blocks_that_do_nothing() {
        for (source, expected) in [
            ("{%- generation -%} a {%- endgeneration %}", "{%- if true -%} a {%- endif %}"),
            ("{%  generation%} {% x", "{%  if true%} {% x"),
            ("{% set generation = 1 %}", "{% set generation = 1 %}"),
            ("{# {% generation %} #}generation", "{# {% generation %} #}generation"),
        ] {
            assert_eq!(rewritten(source), expected);
        }
    }

    /// Returns a template with `S(` instead of the start of a call.
    fn called(text: &str) -> String {
        text.replace("S(", &format!("{SLICE}("))
    }

    #[test]
    fn slices_with_a_step_are_rewritten_outside_of_texts() {
        for (source, expected) in [
            (
                "{% for m in messages[::-1] %}é[::-1]{{ a[ : :-1 ]+b[::-1][0] }}",
                "{% for m in messages.S(none,none,-1) %}é[::-1]{{ a.S(none ,none ,-1 )+b.S(none,none,-1)[0] }}",
            ),
            (
                "{{ '[::-1]' + \"\\\"[::-1]\" + x[1:c[::2]|length:] }}",
                "{{ '[::-1]' + \"\\\"[::-1]\" + x.S(1,c.S(none,none,2)|length,none) }}",
            ),
            ("{{ '}}' + é[::-1] }} {{ open", "{{ '}}' + é.S(none,none,-1) }} {{ open"),
            (
                "{{ a[1:] + a[:2] + a[b] + [{'c': 1, 'd': 2}] }}",
                "{{ a[1:] + a[:2] + a[b] + [{'c': 1, 'd': 2}] }}",
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
        // Without an end, all is.
        let open = format!("{{% raw %}}{slice}{{% open");
        assert_eq!(rewritten(&open), open);
        assert_eq!(rewritten("{% rawness[::-1] %}"), called("{% rawness.S(none,none,-1) %}"));
    }

    #[test]
    fn line_breaks_are_those_of_jinja() {
        assert_eq!(rewritten("a\r\n{{ x }}\rb\n\r\n{# \r\n #}"), "a\n{{ x }}\nb\n\n{# \n #}");
    }
}
