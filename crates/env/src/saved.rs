//! Saved episodes: JSON objects that start with the name and version of their format.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use turnwise_core::{EnvError, Snapshot};

pub(crate) trait SavedEpisode: Serialize + DeserializeOwned {
    const WORLD: &'static str;
    const FORMAT: &'static str;
    /// Version of the format. Increase the version with each change after which older releases
    /// would misread new files.
    const VERSION: u32;

    fn save(&self) -> Result<Snapshot, EnvError> {
        let written = Written { format: Self::FORMAT, version: Self::VERSION, episode: self };
        serde_json::to_vec(&written).map(Snapshot).map_err(|error| EnvError::State(error.to_string()))
    }

    /// Reads a saved episode; rejects episodes of other environments or other format versions.
    fn read(snapshot: &Snapshot) -> Result<Self, EnvError> {
        let broken = |error: serde_json::Error| {
            EnvError::State(format!("these bytes are no saved {} episode ({error})", Self::WORLD))
        };
        let mut keys: Map<String, Value> = serde_json::from_slice(&snapshot.0).map_err(broken)?;
        let mut head = Map::new();
        for key in ["format", "version"] {
            head.extend(keys.remove_entry(key));
        }
        let Form { format, version } = Form::deserialize(Value::Object(head)).map_err(broken)?;
        if (format.as_str(), version) != (Self::FORMAT, Self::VERSION) {
            return Err(EnvError::State(format!(
                "the state is `{format}` version {version}, this program reads `{}` version {}",
                Self::FORMAT,
                Self::VERSION
            )));
        }
        Self::deserialize(Value::Object(keys)).map_err(broken)
    }
}

#[derive(Serialize)]
struct Written<'a, T> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    episode: &'a T,
}

#[derive(Deserialize)]
struct Form {
    format: String,
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Saved {
        task: String,
        at: Option<u16>,
        share: f64,
    }

    impl SavedEpisode for Saved {
        const WORLD: &'static str = "Test";
        const FORMAT: &'static str = "turnwise.test.episode";
        const VERSION: u32 = 2;
    }

    const TEXT: &str = r#"{"format":"turnwise.test.episode","version":2,"task":"t","at":null,"share":0.1}"#;

    #[test]
    fn a_saved_episode_names_its_format_first_and_comes_back() {
        let saved = Saved { task: "t".to_owned(), at: None, share: 0.1 };
        let bytes = saved.save().unwrap();
        assert_eq!(String::from_utf8(bytes.0.clone()).unwrap(), TEXT);
        assert_eq!(Saved::read(&bytes).unwrap(), saved);
    }

    #[test]
    fn other_bytes_are_refused() {
        for (from, to, expected) in [
            (TEXT, "no JSON", "no saved Test episode"),
            (TEXT, "[]", "no saved Test episode"),
            (TEXT, "{}", "missing field `format`"),
            ("\"version\":2,", "", "missing field `version`"),
            ("test.episode", "other.episode", "the state is `turnwise.other.episode` version 2"),
            (
                "\"version\":2",
                "\"version\":1",
                "version 1, this program reads `turnwise.test.episode` version 2",
            ),
            ("\"task\"", "\"game\"", "unknown field `game`"),
            ("\"task\":\"t\",", "", "missing field `task`"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Saved::read(&Snapshot(TEXT.replace(from, to).into_bytes())).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
