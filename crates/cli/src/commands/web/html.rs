//! Pages as HTML. Whatever comes from a catalogue or a person is escaped.

use turnwise_env::webshop::page::{PageView, PartKind};

use crate::commands::pages::html::{document, escape};

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:52rem;margin:1.5rem auto;padding:0 1rem;color:#222}\
    button{font:inherit;margin:.15rem .25rem .15rem 0;padding:.2rem .7rem;border:1px solid #889;border-radius:.3rem;\
    background:#eef;cursor:pointer}button.chosen{background:#246;color:#fff}button.link{margin-top:1rem}\
    button.visited{background:#ddd}p{margin:.2rem 0}.status,.note{color:#666}.note{font-weight:bold}";

/// Returns a page of the shop: each of its parts in order.
pub(super) fn page(view: &PageView<'_>, status: &str, note: Option<&str>, ended: bool) -> String {
    let mut body = format!("<p class=\"status\">{}</p>", escape(status));
    if let Some(note) = note {
        body.push_str(&format!("<p class=\"note\">{}</p>", escape(note)));
    }
    body.push_str("<form method=\"post\">");
    for part in &view.parts {
        let text = escape(&part.text);
        let action = escape(&format!("click[{}]", part.text.to_lowercase()));
        let button = |class: &str| {
            let disabled = if ended { " disabled" } else { "" };
            format!("<button name=\"action\" class=\"{class}\" value=\"{action}\"{disabled}>{text}</button>")
        };
        match part.kind {
            PartKind::Plain => body.push_str(&format!("<p>{text}</p>")),
            // The search button belongs to the field below.
            PartKind::Button if view.has_search_bar => {}
            PartKind::Button => body.push_str(&button("button")),
            PartKind::Option { chosen: false } => body.push_str(&button("option")),
            PartKind::Option { chosen: true } => body.push_str(&button("option chosen")),
            PartKind::Link { visited: false } => body.push_str(&button("link")),
            PartKind::Link { visited: true } => body.push_str(&button("link visited")),
        }
    }
    body.push_str("</form>");
    if view.has_search_bar && !ended {
        body.push_str(
            "<form method=\"post\"><input id=\"search_input\" name=\"search\" size=\"60\" required autofocus \
             aria-label=\"Search\"> <button>Search</button></form>",
        );
    }
    if ended {
        body.push_str("<p><a href=\"/\">Another goal</a></p>");
    }
    document("WebShop", STYLE, &body)
}

#[cfg(test)]
mod tests {
    use turnwise_env::webshop::page::{Part, PartKind};

    use super::*;

    #[test]
    fn everything_is_escaped() {
        let part = |kind, text: &'static str| Part { kind, text: text.into() };
        let view = PageView {
            parts: vec![
                part(PartKind::Plain, "<script>alert('1')</script> & more"),
                part(PartKind::Option { chosen: true }, "19.7\" <X>"),
            ],
            ..PageView::default()
        };
        let page = page(&view, "<i>", Some("<b>"), false);
        assert!(page.contains("<p>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; more</p>"), "{page}");
        assert!(
            page.contains(
                "class=\"option chosen\" value=\"click[19.7&quot; &lt;x&gt;]\">19.7&quot; &lt;X&gt;<"
            )
        );
        assert!(page.contains("&lt;i&gt;") && page.contains("&lt;b&gt;"));
        assert!(!page.contains("<i>") && !page.contains("<b>") && !page.contains("<script"));
    }
}
