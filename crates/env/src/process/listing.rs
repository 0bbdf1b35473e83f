//! Requests a program's tasks page by page.

use serde_json::Value;
use turnwise_core::{EnvError, Task};

use super::program::Process;
use super::protocol::{Request, TaskPage};

const PAGE: usize = 1000;

const MOST_TASKS: usize = 1_000_000;

const MOST_MEMORY: usize = 512 << 20;

#[derive(Debug)]
pub(super) struct Room {
    tasks: usize,
    memory: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { tasks: MOST_TASKS, memory: MOST_MEMORY }
    }
}

impl Room {
    fn take(&mut self, listed: &Value) -> Result<(), String> {
        let advice = "; all are kept in memory, so list a part of them, or describe each by a number and make it at `reset`";
        let tasks = self.tasks.checked_sub(1);
        self.tasks = tasks.ok_or_else(|| format!("lists more than {MOST_TASKS} tasks{advice}"))?;
        let memory = self.memory.checked_sub(memory(listed));
        self.memory =
            memory.ok_or_else(|| format!("lists tasks of more than {} MiB{advice}", MOST_MEMORY >> 20))?;
        Ok(())
    }
}

/// Estimates a JSON value's memory use in bytes. For short values, the memory is many times as
/// large as the JSON text.
fn memory(value: &Value) -> usize {
    const ENTRY: usize = size_of::<Value>() + size_of::<String>();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| size_of::<Value>() + memory(item)).sum(),
        // A map allocates nodes for several entries at once.
        Value::Object(fields) => {
            6 * ENTRY + fields.iter().map(|(name, field)| ENTRY + name.len() + memory(field)).sum::<usize>()
        }
    }
}

pub(super) fn list(process: &Process, split: &str, room: &mut Room) -> Result<Vec<Task>, EnvError> {
    let wrong =
        |reason: String| EnvError::Other(format!("env.command: `tasks` of the split `{split}` {reason}"));
    let mut tasks: Vec<Task> = Vec::new();
    let mut offset = 0;
    loop {
        let request = Request::Tasks { split, offset, limit: PAGE };
        let page: TaskPage = process.ask(&request).map_err(|error| EnvError::Other(error.to_string()))?;
        // Empty if the program skips all tasks; counted as a task, so that endless empty pages
        // fail.
        if page.tasks.is_empty() {
            room.take(&Value::Null).map_err(wrong)?;
        }
        for listed in page.tasks {
            room.take(&listed).map_err(wrong)?;
            let number = tasks.len();
            let task = read_task(listed).map_err(|reason| {
                EnvError::Other(format!("env.command: task number {number} of the split `{split}`: {reason}"))
            })?;
            tasks.push(task);
        }
        match page.next {
            None => return Ok(tasks),
            Some(next) if next > offset => offset = next,
            Some(next) => {
                return Err(wrong(format!(
                    "answers with next = {next} at offset {offset}; the next page begins further on, and the last page has no next"
                )));
            }
        }
    }
}

fn read_task(mut listed: Value) -> Result<Task, String> {
    let fields = listed.as_object_mut().ok_or("a task is an object with `id` and `goal`")?;
    fields.entry("kind").or_insert_with(|| "task".into());
    let known = ["id", "kind", "goal", "metadata", "digest", "limits"];
    if let Some(unknown) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key `{unknown}`; what is the world's own goes under `metadata`"));
    }
    serde_json::from_value(listed).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::program::{Program, ProgramSettings};
    use super::*;

    fn endless(page: &str) -> Program {
        let welcome = r#"{"id":0,"ok":{"protocol":1,"name":"w","splits":["train"]}}"#;
        let script = format!(
            r#"read l; echo '{welcome}'; i=1; while read l; do printf '{{"id":%d,"ok":{{"tasks":[{page}],"next":%d}}}}\n' $i $i; i=$((i+1)); done"#
        );
        Program::new(ProgramSettings {
            command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
            directory: None,
            settings: Value::Null,
            timeout: std::time::Duration::from_secs(5),
            start_timeout: std::time::Duration::from_secs(5),
            max_line: 1 << 20,
        })
    }

    #[test]
    fn endless_pages_end_with_an_error() {
        for page in [r#"{"id":"a","goal":"win"}"#, ""] {
            let program = endless(page);
            let mut room = Room { tasks: 50, ..Room::default() };
            let error = list(&program.process().unwrap(), "train", &mut room).unwrap_err().to_string();
            assert!(
                error.starts_with("env.command: `tasks` of the split `train` lists more than 1000000"),
                "{error}"
            );
        }
        let program = endless(&format!(r#"{{"id":"a","goal":"{}"}}"#, "x".repeat(1000)));
        let mut room = Room { memory: 1 << 20, ..Room::default() };
        let error = list(&program.process().unwrap(), "train", &mut room).unwrap_err().to_string();
        assert!(error.contains("lists tasks of more than 512 MiB"), "{error}");
    }

    #[test]
    fn many_tasks_and_large_ones_are_refused() {
        let small = serde_json::json!({"id": "a", "goal": "win"});
        let mut room = Room { tasks: 2, ..Room::default() };
        room.take(&small).unwrap();
        room.take(&small).unwrap();
        let error = room.take(&small).unwrap_err();
        assert!(error.starts_with("lists more than 1000000 tasks; all are kept in memory"), "{error}");
        let mut room = Room { memory: 5000, ..Room::default() };
        room.take(&small).unwrap();
        let large = serde_json::json!({"id": "a", "goal": "x".repeat(5000)});
        let error = room.take(&large).unwrap_err();
        assert!(error.starts_with("lists tasks of more than 512 MiB; "), "{error}");
    }

    #[test]
    fn short_values_count_as_what_they_take() {
        let list = |item: Value| memory(&Value::Array(vec![item; 1000]));
        // `[[],[],...]` has 3 bytes of text per item.
        assert!(list(serde_json::json!([])) >= 24 * 1000 && list(serde_json::json!({})) >= 200 * 1000);
        assert_eq!(memory(&"text".into()), 4);
    }
}
