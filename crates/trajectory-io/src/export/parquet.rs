//! Exports Parquet files whose messages are lists of structs, as in Hugging Face's `datasets`.

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;

use super::Exported;
use crate::ChatMessage;
use crate::write::{Columns, column, list, optional, table};

/// Column of messages. Arguments and tools are stored as text, because all structs in a column must
/// have the same keys.
const MESSAGES: &str = "required group NAME (list) { repeated group list { required group element {
    required binary role (utf8);
    required binary content (utf8);
    optional binary reasoning_content (utf8);
    optional group tool_calls (list) { repeated group list { required group element {
        required binary id (utf8);
        required binary type (utf8);
        required group function { required binary name (utf8); required binary arguments (utf8); }
    } } }
    optional binary tool_call_id (utf8);
    optional binary name (utf8);
} } }";

const NUMBERS: &str = "optional group NAME (list) { repeated group list { required double element; } }";

pub(super) fn messages(trajectories: &[Exported]) -> Result<Vec<u8>, ParquetError> {
    let schema = format!(
        "message messages {{ {} optional binary tools (utf8); optional double reward; {} {} required binary group (utf8);
            required int64 sample; required int64 step; optional binary task (utf8); optional boolean success; }}",
        MESSAGES.replace("NAME", "messages"),
        NUMBERS.replace("NAME", "turn_rewards"),
        NUMBERS.replace("NAME", "advantages"),
    );
    table(&schema, |rows| {
        let all: Vec<&[ChatMessage]> =
            trajectories.iter().map(|one| one.conversation.messages.as_slice()).collect();
        message_columns(rows, &all)?;
        texts(rows, trajectories.iter().map(Exported::tools))?;
        numbers(rows, trajectories.iter().map(Exported::reward))?;
        number_lists(rows, trajectories.iter().map(|one| one.conversation.rewards.as_deref()))?;
        number_lists(rows, trajectories.iter().map(|one| one.advantages.as_deref()))?;
        required(rows, trajectories.iter().map(Exported::group))?;
        integers(rows, trajectories.iter().map(|one| one.conversation.sample.unwrap_or(0) as u64))?;
        integers(rows, trajectories.iter().map(|one| one.conversation.step))?;
        let task = |one: &Exported| one.conversation.task.as_ref().map(|task| task.goal.clone());
        texts(rows, trajectories.iter().map(task))?;
        let (solved, defined) = optional(trajectories.iter().map(|one| one.conversation.success));
        column::<BoolType>(rows, &solved, Some(&defined), None)
    })
}

pub(super) fn completions(trajectories: &[Exported]) -> Result<Vec<u8>, ParquetError> {
    let schema = format!(
        "message completions {{ required int64 step; {} {} optional binary tools (utf8); optional double reward; }}",
        MESSAGES.replace("NAME", "prompt"),
        MESSAGES.replace("NAME", "completion"),
    );
    table(&schema, |rows| {
        integers(rows, trajectories.iter().map(|one| one.conversation.step))?;
        let (prompts, completions): (Vec<_>, Vec<_>) =
            trajectories.iter().map(|one| one.conversation.split_prompt()).unzip();
        message_columns(rows, &prompts)?;
        message_columns(rows, &completions)?;
        texts(rows, trajectories.iter().map(Exported::tools))?;
        numbers(rows, trajectories.iter().map(Exported::reward))
    })
}

fn message_columns(rows: &mut Columns<'_, '_>, all: &[&[ChatMessage]]) -> Result<(), ParquetError> {
    type Text<'a> = &'a dyn Fn(&ChatMessage) -> Option<String>;
    let of_messages = |text: Text<'_>| {
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for messages in all {
            if messages.is_empty() {
                defined.push(0);
                repeated.push(0);
            }
            for (index, message) in messages.iter().enumerate() {
                let found = text(message);
                defined.push(1 + i16::from(found.is_some()));
                repeated.push(i16::from(index > 0));
                values.extend(found.map(|text| ByteArray::from(text.as_str())));
            }
        }
        (values, defined, repeated)
    };
    let write = |rows: &mut Columns<'_, '_>, text: Text<'_>, required: bool| {
        let (values, mut defined, repeated) = of_messages(text);
        if required {
            // Required columns lack the definition level of optional text.
            for level in &mut defined {
                *level = (*level).min(1);
            }
        }
        column::<ByteArrayType>(rows, &values, Some(&defined), Some(&repeated))
    };
    write(rows, &|message| Some(message.role.clone()), true)?;
    write(rows, &|message| Some(message.content.clone()), true)?;
    write(rows, &|message| message.reasoning.clone(), false)?;
    call_column(rows, all, |call| call.id.clone())?;
    call_column(rows, all, |_| "function".into())?;
    call_column(rows, all, |call| call.name.clone())?;
    call_column(rows, all, crate::ChatCall::arguments_text)?;
    write(rows, &|message| message.call_id.clone(), false)?;
    write(rows, &|message| message.name.clone(), false)
}

fn call_column(
    rows: &mut Columns<'_, '_>,
    all: &[&[ChatMessage]],
    text: impl Fn(&crate::ChatCall) -> String,
) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for messages in all {
        if messages.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (index, message) in messages.iter().enumerate() {
            let first = i16::from(index > 0);
            if message.calls.is_empty() {
                defined.push(1);
                repeated.push(first);
            }
            for (place, call) in message.calls.iter().enumerate() {
                defined.push(3);
                repeated.push(if place == 0 { first } else { 2 });
                values.push(ByteArray::from(text(call).as_str()));
            }
        }
    }
    column::<ByteArrayType>(rows, &values, Some(&defined), Some(&repeated))
}

fn texts(
    rows: &mut Columns<'_, '_>,
    texts: impl Iterator<Item = Option<String>>,
) -> Result<(), ParquetError> {
    let (values, defined) = optional(texts.map(|text| Some(ByteArray::from(text?.as_str()))));
    column::<ByteArrayType>(rows, &values, Some(&defined), None)
}

fn required(rows: &mut Columns<'_, '_>, texts: impl Iterator<Item = String>) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = texts.map(|text| ByteArray::from(text.as_str())).collect();
    column::<ByteArrayType>(rows, &values, None, None)
}

fn integers(rows: &mut Columns<'_, '_>, numbers: impl Iterator<Item = u64>) -> Result<(), ParquetError> {
    let values: Vec<i64> = numbers.map(|number| number as i64).collect();
    column::<Int64Type>(rows, &values, None, None)
}

fn numbers(
    rows: &mut Columns<'_, '_>,
    numbers: impl Iterator<Item = Option<f64>>,
) -> Result<(), ParquetError> {
    let (values, defined) = optional(numbers);
    column::<DoubleType>(rows, &values, Some(&defined), None)
}

fn number_lists<'a>(
    rows: &mut Columns<'_, '_>,
    lists: impl Iterator<Item = Option<&'a [f64]>>,
) -> Result<(), ParquetError> {
    let (values, defined, repeated) = list(lists, 1);
    column::<DoubleType>(rows, &values, Some(&defined), Some(&repeated))
}
