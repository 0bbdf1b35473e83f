//! Tests of Parquet files written by pandas: lists of messages, several row groups.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use turnwise_trajectory_io::{ReadOptions, read};

#[test]
fn completions_may_be_lists_of_messages() {
    let messages = |name: &str| {
        format!(
            "optional group {name} (list) {{ repeated group list {{ optional group element {{
                optional binary content (utf8); optional binary role (utf8); }} }} }}"
        )
    };
    let schema = format!(
        "message schema {{ {} {} optional float reward; }}",
        messages("prompt"),
        messages("completion")
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("completions_00001.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default())).unwrap();
    for reward in [1.0_f32, 0.0] {
        let mut group = writer.next_row_group().unwrap();
        for texts in [
            &["Find it."][..],
            &["user"],
            &["<think>hm</think>look", "A box.", "open box"],
            &["assistant", "tool", "assistant"],
        ] {
            let values: Vec<ByteArray> = texts.iter().map(|&text| ByteArray::from(text)).collect();
            let repeated: Vec<i16> = (0..texts.len()).map(|index| i16::from(index > 0)).collect();
            let mut column = group.next_column().unwrap().unwrap();
            let levels = (vec![4; texts.len()], repeated);
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels.0), Some(&levels.1)).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&[reward], Some(&[1]), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();

    let dump = read(&path, &ReadOptions::default()).unwrap();
    let [step] = &dump.batches[..] else { panic!("{:?}", dump.batches) };
    assert_eq!(step.batch.groups.len(), 1);
    let [first, second] = &step.batch.groups[0].trajectories[..] else { panic!("{:?}", step.batch) };
    let turns: Vec<(&str, &str, f64)> = first
        .turns
        .iter()
        .map(|turn| (turn.observation.as_str(), turn.action.as_str(), turn.reward))
        .collect();
    assert_eq!(turns, [("Find it.", "look", 0.0), ("A box.", "open box", 1.0)]);
    assert_eq!(second.turns[1].reward, 0.0);
    assert_eq!((first.task.goal.as_str(), step.origins[0][1].line), ("Find it.", 2));
}
