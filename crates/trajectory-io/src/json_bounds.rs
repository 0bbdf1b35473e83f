//! Limits the memory used to read JSON, because millions of empty objects fit into a few compressed
//! bytes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use turnwise_core::Turn;

use crate::DumpError;
use crate::dump::TurnExtras;

/// Bytes of memory that are always accepted.
const FREE: u64 = 256 << 20;

/// Further bytes accepted for each byte of text. A turn that has only a reward takes about 42.
const TEXT_TIMES: u64 = 64;

/// Further bytes accepted for each stored byte. Token ids take about 4 bytes per byte of text while
/// they are parsed, and the repeated prompts of a windowed run compress up to 200 times.
const STORED_TIMES: u64 = 1024;

/// Memory used to parse a line, relative to the memory of the result: lists grow by doubling, and
/// the parsed line and the trajectory made from it exist at the same time.
const PARSING: u64 = 3;

/// Bytes of an object, which may be a turn. A map of one key takes about as much.
const OBJECT: u64 = (size_of::<Turn>() + size_of::<TurnExtras>()) as u64;

/// Bytes of a list or string, without the text.
const VALUE: u64 = size_of::<Value>() as u64;

/// Bytes of an item in a list. Token ids and log-probs are 4 bytes, critic values 8.
const ITEM: u64 = size_of::<f64>() as u64;

/// Estimated bytes of memory of a JSON text.
#[derive(Debug, PartialEq)]
struct Estimate {
    /// Bytes if everything is parsed.
    parsed: u64,
    /// Bytes of `parsed` for the outermost object's `tools`, which are kept as text.
    tools: u64,
}

/// Estimates the memory of parsed JSON by counting objects, lists, strings and commas.
fn estimate(json: &str) -> Estimate {
    let bytes = json.as_bytes();
    let (mut parsed, mut tools) = (0_u64, 0_u64);
    let (mut at, mut depth) = (0_usize, 0_usize);
    let (mut last, mut before_tools) = ("", None);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let end = end_of_string(json, at);
                if depth == 1 {
                    last = json.get(at..end).unwrap_or_default();
                }
                at = end + 1;
                parsed += VALUE;
            }
            b'{' | b'[' => {
                if depth == 1 && last == "tools" {
                    before_tools = Some(parsed);
                }
                depth += 1;
                parsed += if byte == b'{' { OBJECT } else { VALUE };
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 1
                    && let Some(before) = before_tools.take()
                {
                    tools += parsed - before;
                }
            }
            b',' => parsed += ITEM,
            _ => {}
        }
    }
    Estimate { parsed, tools }
}

/// Returns the position of the quote that ends the string with this start, or the text's length.
fn end_of_string(json: &str, start: usize) -> usize {
    let mut from = start;
    // `find` skips long strings many bytes at a time.
    while let Some(found) = json.get(from..).and_then(|rest| rest.find('"')) {
        let end = from + found;
        let string = json.as_bytes().get(start..end).unwrap_or_default();
        let backslashes = string.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes.is_multiple_of(2) {
            return end;
        }
        from = end + 1;
    }
    json.len()
}

/// Memory budget for a file of JSON, which grows with the text that was read.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Size of the file; 0 for a pipe.
    length: u64,
    /// Stored bytes read so far.
    position: Arc<AtomicU64>,
    /// Bytes of text read so far.
    text: u64,
    /// Estimated memory of everything parsed so far.
    kept: u64,
}

impl Budget {
    pub(crate) fn new(length: u64, position: Arc<AtomicU64>) -> Self {
        Self { length, position, text: 0, kept: 0 }
    }

    /// Adds text that was read.
    pub(crate) fn add_text(&mut self, bytes: usize) {
        self.text += bytes as u64;
    }

    /// Reserves the memory for JSON that will be parsed. Errors show the line.
    pub(crate) fn take(&mut self, path: &Path, line: usize, json: &str) -> Result<(), DumpError> {
        let Estimate { parsed, tools } = estimate(json);
        let needed = self.kept.saturating_add(parsed.saturating_mul(PARSING));
        let stored = self.length.max(self.position.load(Ordering::Relaxed));
        let by_text = self.text.saturating_mul(TEXT_TIMES);
        let by_stored = stored.saturating_mul(STORED_TIMES);
        let limit = FREE.saturating_add(by_text.min(by_stored));
        if needed > limit {
            let remedy = if by_stored < by_text {
                "decompress it first"
            } else {
                "split it into several files, and long lines into several lines"
            };
            let reason = format!(
                "reading up to this line takes about {needed} bytes of memory, and the limit for a file of {stored} bytes with \
                 {} bytes of text so far is {limit}; if you trust the file, {remedy}",
                self.text
            );
            return Err(DumpError::line(path, line, reason));
        }
        self.kept += parsed - tools;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Dump, Format, ReadOptions, read};

    fn packed(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 3).unwrap()
    }

    fn parse(name: &str, bytes: &[u8], format: Option<Format>) -> Result<Dump, DumpError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&path, &ReadOptions { format, ..ReadOptions::default() })
    }

    fn refusal(bytes: &[u8], format: Option<Format>) -> String {
        let started = Instant::now();
        let error = parse("bomb.jsonl", bytes, format).unwrap_err().to_string();
        assert!(started.elapsed() < Duration::from_secs(20), "{format:?}: {:?}", started.elapsed());
        assert!(
            error.contains("bomb.jsonl: line 1: ") && error.contains("bytes of memory"),
            "{format:?}: {error}"
        );
        error
    }

    #[test]
    fn structure_is_counted_outside_of_strings() {
        let json = r#"{"a\"{[,\\":[1,2],"tools":[{}]}"#;
        let expected = Estimate { parsed: 2 * OBJECT + 4 * VALUE + 2 * ITEM, tools: OBJECT + VALUE };
        assert_eq!(estimate(json), expected);
        assert_eq!(estimate(r#"{"a":{"tools":[{}]}}"#).tools, 0);
        for cut in [r#""a\"#, r#""é"#, "\"", "", "]]}", r#"{"tools":["#] {
            assert_eq!(estimate(cut).tools, 0, "{cut}");
        }
    }

    #[test]
    fn millions_of_values_in_a_few_compressed_bytes_are_refused() {
        let many = |item: &str| [item, ","].concat().repeat(4_000_000) + item;
        for (format, before, item, after) in [
            (Format::Turnwise, r#"{"group":0,"turns":["#, "{}", "]}"),
            (
                Format::Turnwise,
                r#"{"schema_version":1,"group":0,"turns":[{"reward":0,"calls":[{"id":"","name":"","arguments":["#,
                r#"{"":0}"#,
                "]}]}]}",
            ),
            (Format::Verl, r#"{"input":"","output":"","score":0,"uid":["#, "[]", "]}"),
            (Format::Verifiers, r#"{"traces":["#, "{}", "]}"),
            (Format::Messages, r#"{"messages":["#, "{}", "]}"),
            (Format::Messages, r#"[{"messages":["#, r#""a""#, "]}]"),
            (Format::Atif, r#"{"schema_version":"ATIF-v1.8","steps":["#, "{}", "]}"),
        ] {
            let bomb = packed(&[before, &many(item), after].concat());
            assert!(bomb.len() < 20_000, "{format}: {} bytes", bomb.len());
            for format in [Some(format), None] {
                let error = refusal(&bomb, format);
                assert!(error.contains("decompress it first"), "{error}");
            }
        }
    }

    #[test]
    fn a_plain_file_of_empty_turns_is_refused() {
        let text = format!(r#"{{"group":0,"turns":[{}{{}}]}}"#, "{},".repeat(700_000));
        for format in [Some(Format::Turnwise), None] {
            assert!(refusal(text.as_bytes(), format).contains("split it into several files"));
        }
    }

    #[test]
    fn many_lines_are_counted_together() {
        let line = |turns: usize| {
            format!("{{\"group\":0,\"turns\":[{}{{\"reward\":0}}]}}\n", r#"{"reward":0},"#.repeat(turns))
        };
        let bomb = packed(&line(9999).repeat(80));
        let error = parse("bomb.jsonl", &bomb, Some(Format::Turnwise)).unwrap_err().to_string();
        assert!(error.contains("bomb.jsonl: line ") && error.contains("bytes of memory"), "{error}");
        assert!(!error.contains("line 1:"), "{error}");
        assert!(parse("a.jsonl", &packed(&line(9999).repeat(20)), Some(Format::Turnwise)).is_ok());
    }

    #[test]
    fn long_lists_of_token_ids_are_read() {
        // The prompts of a windowed run repeat.
        let ids = (0..100_000_u32).map(|id| (id.wrapping_mul(2_654_435_761) % 150_000).to_string());
        let sequence = format!(r#"{{"tokens":[{}],"spans":[]}}"#, ids.collect::<Vec<_>>().join(","));
        let sequences = vec![sequence; 120].join(",");
        let text = format!(
            r#"{{"schema_version":1,"group":"a","turns":[{{"reward":1}}],"sequences":[{sequences}]}}"#
        );
        assert!(estimate(&text).parsed * PARSING > FREE);
        for bytes in [packed(&text), text.into_bytes()] {
            let dump = parse("a.jsonl", &bytes, Some(Format::Turnwise)).unwrap();
            let sequences = &dump.batches[0].batch.groups[0].trajectories[0].sequences;
            assert_eq!((sequences.len(), sequences[119].tokens.len()), (120, 100_000));
        }
    }

    #[test]
    fn tools_that_repeat_in_each_line_are_read() {
        let properties: Vec<String> =
            (0..400).map(|index| format!(r#""p{index}":{{"type":"string"}}"#)).collect();
        let parameters = format!(r#"{{"type":"object","properties":{{{}}}}}"#, properties.join(","));
        let line = |index: usize| {
            format!(
                r#"{{"messages":[{{"role":"user","content":"{index}"}},{{"role":"assistant","content":"a"}}],"tools":[{{"name":"f","parameters":{parameters}}}]}}"#
            )
        };
        let text = (0..3000).map(line).collect::<Vec<_>>().join("\n");
        let bytes = packed(&text);
        assert!(3000 * estimate(&line(0)).parsed > FREE + STORED_TIMES * bytes.len() as u64);
        let dump = parse("a.jsonl", &bytes, Some(Format::Messages)).unwrap();
        assert_eq!(dump.batches[0].batch.groups.len(), 3000);
    }
}
