//! TRL's completion logs, `<output_dir>/completions/completions_<step>.parquet`, with `step`,
//! `prompt`, `completion`, reward columns and `advantage`.
//!
//! Samples with the same step and prompt form a group. The last turn gets the weighted sum of the
//! rewards. By default, every floating-point column except `advantage` is a reward with weight 1;
//! [`crate::ReadOptions::rewards`] selects other columns and weights. Missing rewards count as 0.
//! The files lack entropies, turn rewards, progress and values.

use std::path::Path;

use serde_json::Value;

use crate::decoded::Headings;
use crate::dump::Record;
use crate::{DumpError, chat, decoded, lines, parquet_rows};

pub(crate) fn records(
    path: &Path,
    rewards: &[(String, f64)],
    notes: &mut Vec<String>,
) -> Result<Vec<Record>, DumpError> {
    if !lines::is_parquet(path)? {
        return Err(DumpError::file(path, "this is no Parquet file; TRL writes completions_*.parquet"));
    }
    let table = parquet_rows::read(path)?;
    for needed in ["prompt", "completion"] {
        if !table.columns.iter().any(|(name, _)| name == needed) {
            let names: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
            let reason = format!("there is no column `{needed}`; the columns are {}", names.join(", "));
            return Err(DumpError::file(path, reason));
        }
    }
    let found = || {
        let floating = table.columns.iter().filter(|(name, floating)| *floating && name != "advantage");
        floating.map(|(name, _)| (name.clone(), 1.0)).collect::<Vec<_>>()
    };
    let chosen = if rewards.is_empty() { found() } else { rewards.to_vec() };
    if chosen.is_empty() {
        return Err(DumpError::file(path, "there is no reward column (of floating-point numbers)"));
    }
    for (name, _) in &chosen {
        if !table.columns.iter().any(|(known, floating)| known == name && *floating) {
            let known: Vec<String> = found().into_iter().map(|(name, _)| name).collect();
            let reason = format!("`{name}` is no reward column; there are {}", known.join(", "));
            return Err(DumpError::file(path, reason));
        }
    }
    if rewards.is_empty() {
        let names: Vec<&str> = chosen.iter().map(|(name, _)| name.as_str()).collect();
        notes.push(format!("reward = {} (TRL stores no weights)", names.join(" + ")));
    }
    let mut records = Vec::with_capacity(table.rows.len());
    for (index, row) in table.rows.iter().enumerate() {
        let line = index + 1;
        let step = row.get("step").and_then(Value::as_u64).unwrap_or(0);
        let side = |name: &str| {
            let value = row.get(name).unwrap_or(&Value::Null);
            chat::messages(value).ok_or_else(|| {
                DumpError::line(path, line, format!("`{name}` is neither a text nor a list of messages"))
            })
        };
        let (prompt, completion) = (side("prompt")?, side("completion")?);
        let reward =
            chosen.iter().map(|(name, weight)| weight * row.get(name).and_then(Value::as_f64).unwrap_or(0.0));
        let reward = reward.sum();
        let key = row.get("prompt").map(Value::to_string).unwrap_or_default();
        let goal =
            prompt.last().map(|message| decoded::last_prompt(&message.text)).unwrap_or_default().to_owned();
        let mut messages: Vec<chat::Message> =
            prompt.into_iter().map(|message| chat::Message { sampled: false, ..message }).collect();
        match completion.as_slice() {
            // A text may hold a whole conversation.
            [only] if row.get("completion").is_some_and(Value::is_string) => {
                let prompt = row.get("prompt").and_then(Value::as_str).unwrap_or_default();
                messages.extend(decoded::split(&only.text, Headings::of(prompt)));
            }
            _ => messages.extend(completion),
        }
        records.push(chat::record(line, step, key, Value::Null, goal, messages, reward, None));
    }
    chat::name_groups(&mut records);
    Ok(records)
}
