//! Pictures of turns: stored by the run, or drawn from the text of the observation (Sokoban, EZPoints).

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;
use turnwise_core::{ImageHandle, Part, Turn};
use turnwise_env::ezpoints::cards::{Card, Deal, Suit};
use turnwise_env::ezpoints::game::{Action, Game};
use turnwise_env::ezpoints::picture::Cards;
use turnwise_env::pictures::png;
use turnwise_env::sokoban::level;
use turnwise_env::sokoban::picture::Tiles;

use crate::commands::picture::base64;

/// Largest picture file that is embedded in a page, in bytes.
const LARGEST: u64 = 4 << 20;

/// First bytes of a PNG file.
const MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Longest text that is drawn, in bytes. The largest Sokoban room is shorter.
const LONGEST: usize = 8 << 10;

static TILES: LazyLock<Tiles> = LazyLock::new(Tiles::own);
static CARDS: LazyLock<Cards> = LazyLock::new(Cards::own);

/// Source of the pictures of turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pictures {
    /// The folder that the run wrote pictures to.
    folder: Option<PathBuf>,
    world: World,
}

/// Environments whose observations are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum World {
    Sokoban,
    EzPoints,
    #[default]
    Other,
}

impl Pictures {
    /// Returns the pictures of a run with this config. A relative `env.pictures` is relative to the working
    /// directory, as for the run.
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

    /// Returns the picture of an observation as an `img` element; empty without one.
    pub(super) fn of(&self, turn: &Turn) -> String {
        let stored = turn.parts.iter().find_map(|part| match part {
            Part::Image(handle) => self.stored(handle),
            _ => None,
        });
        let bytes = stored.or_else(|| self.drawn(&turn.observation));
        bytes.map_or_else(String::new, |bytes| {
            format!(
                "<img class=\"picture\" alt=\"picture of the observation\" src=\"data:image/png;base64,{}\">",
                base64(&bytes)
            )
        })
    }

    /// Reads a stored PNG file. Its name must be a digest, so that no other file can be read.
    fn stored(&self, handle: &ImageHandle) -> Option<Vec<u8>> {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if handle.sha256.len() != 64 || !handle.sha256.bytes().all(digits) {
            return None;
        }
        let path = self.folder.as_ref()?.join(format!("{}.png", handle.sha256));
        read_png(&path)
    }

    /// Draws the picture of an observation.
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

fn read_png(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.starts_with(MAGIC) && bytes.len() as u64 <= LARGEST).then_some(bytes)
}

/// Draws a room in either of Sokoban's text formats.
fn sokoban(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|letter| !matches!(letter, ' ' | '\t')).collect();
    let room = level::parse(text.trim()).ok()?;
    png::encode(&TILES.render(&room)).ok()
}

/// Draws `Cards: 2 of diamonds, 10 of clubs` and `Formula: 2 +`.
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

/// Parses a card such as `10 of clubs`.
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
}
