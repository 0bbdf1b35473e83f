//! Rewriting of a template's source before it is compiled.

/// The template without what this Jinja does not know or cannot do:
///
/// * The tags that mark the model's words in training templates do nothing here: `{% generation %}` becomes
///   `{% if true %}` and its end an `endif`, with the same trimming of white space.
/// * `[::-1]` becomes `|reverse`, because the library fails on backward slices of empty lists.
pub(super) fn rewritten(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((at, close)) = next_tag(rest) {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = match close {
            "#}" => {
                let end = tag.find(close).map_or(tag.len(), |end| end + 2);
                out.push_str(&tag[..end]);
                &tag[end..]
            }
            "%}" => expression(generation(tag, &mut out), close, &mut out),
            _ => expression(tag, close, &mut out),
        };
    }
    out.push_str(rest);
    out
}

/// The start of the next tag, and its closing.
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

/// Copies a tag up to its end, backward slices rewritten; returns what comes after.
fn expression<'a>(tag: &'a str, close: &str, out: &mut String) -> &'a str {
    let mut quote = None;
    let mut rest = tag;
    while let Some(character) = rest.chars().next() {
        let mut step = character.len_utf8();
        match quote {
            None if rest.starts_with(close) => return rest,
            None if character == '\'' || character == '"' => quote = Some(character),
            None => {
                if let Some(length) = backward_slice(rest) {
                    out.push_str("|reverse");
                    rest = &rest[length..];
                    continue;
                }
            }
            // What is escaped cannot end a text.
            Some(_) if character == '\\' => step += rest[step..].chars().next().map_or(0, char::len_utf8),
            Some(open) if character == open => quote = None,
            Some(_) => {}
        }
        out.push_str(&rest[..step]);
        rest = &rest[step..];
    }
    rest
}

/// The length of `[::-1]` at the start of a text, white space in it or not.
fn backward_slice(text: &str) -> Option<usize> {
    let mut rest = text.strip_prefix('[')?;
    for part in [":", ":", "-", "1", "]"] {
        rest = rest.trim_start().strip_prefix(part)?;
    }
    Some(text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::rewritten;

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

    #[test]
    fn backward_slices_are_rewritten_outside_of_texts() {
        for (source, expected) in [
            (
                "{% for m in messages[::-1] %}é[::-1]{{ a[ : :-1 ]+b[::-1] }}",
                "{% for m in messages|reverse %}é[::-1]{{ a|reverse+b|reverse }}",
            ),
            ("{{ '[::-1]' + \"\\\"[::-1]\" + x[::-2] }}", "{{ '[::-1]' + \"\\\"[::-1]\" + x[::-2] }}"),
            ("{{ '}}' + é[::-1] }} {{ open", "{{ '}}' + é|reverse }} {{ open"),
        ] {
            assert_eq!(rewritten(source), expected);
        }
    }
}
