//! Keys of earlier versions and what they are called now.

use toml::{Table, Value};

/// Old key and new key, dotted from the root of a config.
const RENAMED: [(&str, &str); 6] = [
    ("rollout.groups", "rollout.tasks_per_step"),
    ("rollout.slots", "rollout.max_num_seqs"),
    ("train.minibatches", "train.num_minibatches"),
    ("train.epochs", "train.update_epochs"),
    ("sft.injection", "sft.invalid_action_prob"),
    ("sft.overlook", "sft.option_drop_prob"),
];

/// The first renamed key of a table as an error text, if there is one.
pub(super) fn find(table: &Table) -> Option<String> {
    let holds = |key: &str| {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| table.get(part));
        parts.try_fold(first?, |value: &Value, part| value.as_table()?.get(part))
    };
    let (old, new) = RENAMED.iter().find(|(old, _)| holds(old).is_some())?;
    Some(format!("`{old}` is called `{new}` now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_names_the_new_one() {
        for (old, new) in RENAMED {
            let table: Table = format!("{old} = 1").parse().unwrap();
            let error = find(&table).unwrap();
            assert!(error.contains(old) && error.contains(new), "{error}");
            let table: Table = format!("{new} = 1").parse().unwrap();
            assert_eq!(find(&table), None);
        }
    }
}
