//! Images of turns: saved by the run, drawn from text (Sokoban, EZPoints), or in a message
//! (`image_url`).

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use turnwise_core::{ImageHandle, Part, Turn};
use turnwise_env::ezpoints::cards::{Card, Deal, Suit};
use turnwise_env::ezpoints::game::{Action, Game};
use turnwise_env::ezpoints::picture::Cards;
use turnwise_env::pictures::png;
use turnwise_env::sokoban::level;
use turnwise_env::sokoban::picture::Tiles;
use turnwise_model::vision::Image;

use crate::commands::pages::html::escape;

/// Maximum size in bytes of an embedded image, and of all images in a message together.
const LARGEST: u64 = 4 << 20;

const MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Maximum length in bytes of a text from which an image is drawn; the text of any Sokoban room is
/// shorter.
const LONGEST: usize = 8 << 10;

static TILES: LazyLock<Tiles> = LazyLock::new(Tiles::own);
static CARDS: LazyLock<Cards> = LazyLock::new(Cards::own);

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pictures {
    folder: Option<PathBuf>,
    world: World,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum World {
    Sokoban,
    EzPoints,
    #[default]
    Other,
}

impl Pictures {
    /// Returns the source of a run's images. A relative path in `env.pictures` is resolved against
    /// the working directory, as in the run.
    pub(super) fn of_config(text: &str) -> Self {
        #[derive(Default, Deserialize)]
        struct Settings {
            #[serde(default)]
            env: Env,
        }
        #[derive(Default, Deserialize)]
        struct Env {
            kind: Option<String>,
            pictures: Option<PathBuf>,
        }
        let Settings { env } = toml::from_str(text).unwrap_or_default();
        let world = match env.kind.as_deref() {
            Some("sokoban") => World::Sokoban,
            Some("ezpoints") => World::EzPoints,
            _ => World::Other,
        };
        Self { folder: env.pictures, world }
    }

    pub(super) fn of(&self, turn: &Turn) -> String {
        let stored = turn.parts.iter().find_map(|part| match part {
            Part::Image(handle) => self.stored(handle),
            _ => None,
        });
        let bytes = stored.or_else(|| self.drawn(&turn.observation));
        bytes.map_or_else(String::new, |bytes| {
            format!(
                "<img class=\"picture\" alt=\"picture of the observation\" src=\"data:image/png;base64,{}\">",
                STANDARD.encode(&bytes)
            )
        })
    }

    /// Reads a saved PNG file. The file name must be a SHA-256 digest, so that no other files can
    /// be read.
    fn stored(&self, handle: &ImageHandle) -> Option<Vec<u8>> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if handle.sha256.len() != 64 || !handle.sha256.bytes().all(digits) {
            return None;
        }
        let path = self.folder.as_ref()?.join(format!("{}.png", handle.sha256));
        read_png(&path)
    }

    fn drawn(&self, text: &str) -> Option<Vec<u8>> {
        if text.len() > LONGEST {
            return None;
        }
        match self.world {
            World::Sokoban => sokoban(text),
            World::EzPoints => ezpoints(text),
            World::Other => None,
        }
    }
}

/// Returns a message as HTML; lines with OpenAI `image_url` parts (JSON) become images.
pub(super) fn with_parts(text: &str) -> String {
    if !text.contains("\"image_url\"") {
        return format!("<pre>{}</pre>", escape(text));
    }
    let mut left = LARGEST as usize;
    let mut body = String::new();
    let mut lines: Vec<&str> = Vec::new();
    let flush = |lines: &mut Vec<&str>, body: &mut String| {
        if !lines.is_empty() {
            *body += &format!("<pre>{}</pre>", escape(&lines.join("\n")));
            lines.clear();
        }
    };
    for line in text.split('\n') {
        let Some(url) = image_url(line) else {
            lines.push(line);
            continue;
        };
        flush(&mut lines, &mut body);
        body += &match of_data_url(&url, &mut left) {
            Ok(source) => format!("<img class=\"picture\" alt=\"picture of a message\" src=\"{source}\">"),
            Err(reason) => format!("<p class=\"note\">{}</p>", escape(&reason)),
        };
    }
    flush(&mut lines, &mut body);
    body
}

fn image_url(line: &str) -> Option<String> {
    if !line.starts_with('{') {
        return None;
    }
    let part: Value = serde_json::from_str(line).ok().filter(|part: &Value| part["type"] == "image_url")?;
    let image = &part["image_url"];
    image["url"].as_str().or(image.as_str()).map(str::to_owned)
}

/// Returns a data URL that is safe to show, or the reason why it cannot be shown. Subtracts the
/// image's size from `left`, the bytes that the message may still embed.
fn of_data_url(url: &str, left: &mut usize) -> Result<String, String> {
    let Some(data) = url.strip_prefix("data:") else {
        let url: String = url.chars().take(200).collect();
        return Err(format!("a picture at {url}, which is not fetched"));
    };
    let data = data.split_once(";base64,").ok_or("a picture that is not in base64")?.1;
    if data.len() / 4 * 3 > *left {
        let bytes = data.len() / 4 * 3;
        return Err(format!("a picture of {bytes} bytes; a message shows at most {LARGEST}"));
    }
    let bytes = STANDARD.decode(data).map_err(|error| format!("a picture in damaged base64: {error}"))?;
    // A browser would allocate the size that the header declares.
    Image::dimensions(&bytes).map_err(|reason| format!("a picture that is not shown: {reason}"))?;
    *left = left.saturating_sub(bytes.len());
    let kind = if bytes.starts_with(MAGIC) { "png" } else { "jpeg" };
    Ok(format!("data:image/{kind};base64,{}", STANDARD.encode(&bytes)))
}

fn read_png(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.starts_with(MAGIC) && bytes.len() as u64 <= LARGEST).then_some(bytes)
}

fn sokoban(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|letter| !matches!(letter, ' ' | '\t')).collect();
    let room = level::parse(text.trim()).ok()?;
    png::encode(&TILES.render(&room)).ok()
}

fn ezpoints(text: &str) -> Option<Vec<u8>> {
    let (cards, formula) = text.strip_prefix("Cards: ")?.split_once("\nFormula:")?;
    let (left, right) = cards.split_once(", ")?;
    let mut game = Game::new(Deal([card(left)?, card(right)?]));
    for symbol in formula.split_whitespace() {
        match Action::parse(symbol) {
            action @ Action::Add(symbol) if game.can_add(symbol) => game.act(action),
            _ => return None,
        };
    }
    CARDS.png(&game).ok()
}

fn card(words: &str) -> Option<Card> {
    let (rank, suit) = words.split_once(" of ")?;
    let suit = Suit::ALL.into_iter().find(|known| known.word() == suit)?;
    (1..=13).filter_map(|number| Card::new(suit, number)).find(|card| card.rank_word() == rank)
}

#[cfg(test)]
mod tests {
    use turnwise_env::sokoban::room::RoomText;

    use super::*;

    fn turn(text: &str) -> Turn {
        Turn { observation: text.into(), ..Turn::default() }
    }

    #[test]
    fn worlds_with_pictures_are_drawn_from_their_texts() {
        let room = "######\n#__P_#\n#OX__#\n##___#\n#____#\n######";
        let sokoban = Pictures::of_config("[env]\nkind = \"sokoban\"\n");
        let drawn = sokoban.of(&turn(room));
        assert!(drawn.contains("src=\"data:image/png;base64,iVBORw0KGgo"), "{drawn}");
        let spaced = level::parse(room).unwrap().render(RoomText::VerlAgent);
        assert_eq!(sokoban.of(&turn(&spaced)), drawn);
        assert_eq!(sokoban.of(&turn("<script>")), "");
        let ezpoints = Pictures::of_config("[env]\nkind = \"ezpoints\"\n");
        let cards = "Cards: 2 of diamonds, 10 of clubs\nFormula:";
        let (first, second) = (ezpoints.of(&turn(cards)), ezpoints.of(&turn(&format!("{cards} 2 +"))));
        assert!(first.contains("image/png") && second.contains("image/png") && first != second);
        assert_eq!(ezpoints.of(&turn("Cards: 2 of diamonds, 99 of clubs\nFormula:")), "");
        assert_eq!(Pictures::default().of(&turn(room)), "");
    }

    #[test]
    fn only_pictures_of_the_runs_folder_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = folder.path().join("pictures");
        std::fs::create_dir(&pictures).unwrap();
        std::fs::write(folder.path().join("secret.png"), [MAGIC, b"secret"].concat()).unwrap();
        let digest = "a".repeat(64);
        std::fs::write(pictures.join(format!("{digest}.png")), [MAGIC, b"x"].concat()).unwrap();
        let text = format!("[env]\nkind = \"x\"\npictures = {:?}\n", pictures.display().to_string());
        let of = |name: &str| {
            let handle = ImageHandle { sha256: name.into(), media_type: "image/png".into() };
            Pictures::of_config(&text).of(&Turn { parts: vec![Part::Image(handle)], ..Turn::default() })
        };
        assert!(of(&digest).contains("data:image/png"));
        for hostile in ["../secret", &"A".repeat(64), "", "/etc/passwd"] {
            assert_eq!(of(hostile), "", "{hostile}");
        }
        std::fs::write(pictures.join(format!("{digest}.png")), "<svg>").unwrap();
        assert_eq!(of(&digest), "", "a file that is not PNG");
    }

    #[test]
    fn pictures_of_messages_are_shown_if_they_are_small_pictures() {
        let room = level::parse("######\n#__P_#\n#OX__#\n##___#\n#____#\n######").unwrap();
        let file = png::encode(&TILES.render(&room)).unwrap();
        let part = |kind: &str, bytes: &[u8]| {
            let url = format!("data:{kind};base64,{}", STANDARD.encode(bytes));
            serde_json::json!({ "type": "image_url", "image_url": { "url": url } }).to_string()
        };
        let shown = with_parts(&format!("before <b>\n{}\nafter", part("image/png", &file)));
        let (before, after) = ("<pre>before &lt;b&gt;</pre><img class=\"picture\"", "\"><pre>after</pre>");
        assert!(shown.starts_with(before) && shown.ends_with(after), "{shown}");
        assert!(shown.contains(&format!("src=\"data:image/png;base64,{}\"", STANDARD.encode(&file))));
        // The content decides, not the URL's type.
        assert!(with_parts(&part("text/html", &file)).contains("src=\"data:image/png;base64,"));
        let mut bomb = file.clone();
        bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        let large = [&file[..], &vec![0; LARGEST as usize]].concat();
        for (text, reason) in [
            (part("image/png", &large), "a message shows at most"),
            (part("image/png", &bomb), "a picture that is not shown"),
            (part("image/svg+xml", b"<svg onload=\"x()\">"), "a picture that is not shown"),
            (
                r#"{"type":"image_url","image_url":"https://example.org/<b>"}"#.into(),
                "org/&lt;b&gt;, which is not",
            ),
            (
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,\"onload="}}"#.into(),
                "damaged base64",
            ),
        ] {
            let shown = with_parts(&text);
            assert!(shown.contains(reason) && !shown.contains("<img"), "{shown}");
        }
        let half = part("image/png", &[&file[..], &vec![0; LARGEST as usize / 2]].concat());
        let shown = with_parts(&format!("{half}\n{half}"));
        assert_eq!((shown.matches("<img").count(), shown.matches("shows at most").count()), (1, 1));
        for text in ["say \"image_url\"", "{\"image_url\": 3}"] {
            assert_eq!(with_parts(text), format!("<pre>{}</pre>", escape(text)));
        }
    }
}
