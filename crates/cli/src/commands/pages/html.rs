use crate::console::visible;

/// Escapes text for HTML and double-quoted attributes. Control characters and bidirectional marks
/// become escapes (`\u202e`).
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(character),
        }
    }
    out
}

/// Returns an HTML document; only `title` is escaped.
pub(in crate::commands) fn document(title: &str, style: &str, body: &str) -> String {
    document_with(title, style, "", body)
}

pub(in crate::commands) fn document_with(title: &str, style: &str, head: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title><style>{style}</style>{head}</head><body>{body}</body></html>\n",
        escape(title)
    )
}

pub(in crate::commands) fn message(text: &str) -> String {
    let style = "body{font:16px/1.5 sans-serif;max-width:52rem;margin:1.5rem auto;padding:0 1rem}";
    document("turnwise", style, &format!("<p>{}</p><p><a href=\"/\">To the first page</a></p>", escape(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let page = document("<a>", "p{}", &format!("<p title=\"{}\">", escape("\"'<script>&")));
        assert!(page.contains("<title>&lt;a&gt;</title><style>p{}</style>"), "{page}");
        assert!(page.contains("<p title=\"&quot;&#39;&lt;script&gt;&amp;\">"), "{page}");
        assert!(!message("<b>").contains("<b>"));
        assert_eq!(escape("a\u{202e}b\u{7}\n"), "a\\u202eb\\u0007\n");
    }
}
