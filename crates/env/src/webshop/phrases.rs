use turnwise_core::EnvError;

use super::catalogue::Catalogue;

const MOST_PRODUCTS: usize = 4_000;

/// Phrases that a word-level tokenizer keeps as one token, longest first.
const PHRASES: &[&str] = &[
    "rating: n.a.\ndescription\nfeatures\nreviews\nbuy now\n>",
    "back to search\npage 1 (total results: 50)\nnext >\n",
    "webshop\ninstruction:\nfind me",
    " click[back to search]\n",
    ", and price lower than",
    "back to search\n< prev\n",
    "webshop\ninstruction:\n",
    " click[description]\n",
    " click[features]\n",
    " dollars\nsearch\n>",
    "\nback to search\n",
    " (total results:",
    " click[buy now]\n",
    " click[reviews]\n",
    ")\n< prev\nnext >\n",
    " click[< prev]\n",
    " click[next >]\n",
    "back to search\n",
    "\nprice: $",
    "\nsearch\n>",
    ")\nnext >\n",
    " search[",
    " click[",
    " to $",
    ".49\n",
    ".99\n",
    ".0\n",
    ".00",
    ".49",
    ".99",
    "\n$",
    "\n>",
    ".0",
    "]\n",
];

/// Returns the phrases, including the ASINs of small catalogues, so that a policy can copy an ASIN
/// with one token.
pub(super) fn phrases(catalogue: &Catalogue) -> Result<Vec<String>, EnvError> {
    let mut phrases: Vec<String> = PHRASES.iter().map(|phrase| (*phrase).to_owned()).collect();
    if catalogue.len() <= MOST_PRODUCTS {
        for index in 0..catalogue.len() as u32 {
            phrases.push(catalogue.product(index)?.asin.to_lowercase());
        }
    }
    Ok(phrases)
}
