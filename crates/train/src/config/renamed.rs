//! Renamed keys.

use turnwise_settings::{Problem, SettingsError};

use super::layers::Layer;

/// Old key and new key, dotted from the root of a config.
const RENAMED: [(&str, &str); 31] = [
    ("rollout.groups", "rollout.tasks_per_step"),
    ("rollout.slots", "rollout.max_num_seqs"),
    ("train.minibatches", "train.num_minibatches"),
    ("train.epochs", "train.update_epochs"),
    ("sft.injection", "sft.invalid_action_prob"),
    ("sft.overlook", "env.expert.option_drop_prob"),
    ("sft.option_drop_prob", "env.expert.option_drop_prob"),
    ("sft.source", "env.expert.source"),
    ("sft.order", "env.expert.search_order"),
    ("objective.selective.detach_blind", "objective.selective.detach_masked"),
    ("env.expert.haste_prob", "env.expert.early_evaluation_prob"),
    ("env.name", "env.kind"),
    ("env.world.seed", "env.generator.seed"),
    ("env.world.size", "env.generator.size"),
    ("env.world.train", "env.generator.train"),
    ("env.world.valid_seen", "env.generator.valid_seen"),
    ("env.world.valid_unseen", "env.generator.valid_unseen"),
    ("env.world.floor_plans", "env.generator.floor_plans"),
    ("env.world.task_types", "env.generator.task_types"),
    ("env.world", "env.generator"),
    ("env.shop.products", "env.generator.products"),
    ("env.shop.seed", "env.generator.seed"),
    ("env.shop.options.size", "env.size"),
    ("env.shop.options.goals", "env.goals"),
    ("env.shop.options.goals_per_product", "env.goals_per_product"),
    ("env.shop.options.seed", "env.goal_seed"),
    ("env.shop.options.splits", "env.goal_splits"),
    ("env.shop.options.matching", "env.matching"),
    ("env.shop.options.reward", "env.reward"),
    ("env.shop.options.observation", "env.observation"),
    ("env.shop.options.show_attributes", "env.show_attributes"),
];

/// Removed keys, and what replaced them.
const GONE: [(&str, &str); 1] = [(
    "prompt.verl_agent_parsing",
    "is a matter of the prompt template now; remove this key and set prompt.template to one whose [response] reads as \
     verl-agent does (blocks = \"any\", case = \"lower\" ..): \"alfworld-verl-agent\", \"webshop-verl-agent\", \
     \"alfworld-stapo\", \"webshop-stapo\", or a file of your own",
)];

/// Rejects keys of earlier versions.
///
/// # Errors
/// Returns each such key with its origin and new name.
pub(super) fn check<'a>(layers: impl IntoIterator<Item = &'a Layer>) -> Result<(), SettingsError> {
    let mut found = Vec::new();
    for layer in layers {
        let keys = layer.keys();
        let renamed = |key: &str| RENAMED.iter().find(|(old, _)| *old == key).map(|(_, new)| *new);
        for key in &keys {
            if let Some((_, reason)) = GONE.iter().find(|(old, _)| old == key) {
                found.push(Problem { origin: layer.origin(key), ..Problem::new(key, *reason) });
            }
            let Some(new) = renamed(key) else { continue };
            // A table whose own keys have new names is said by these.
            let inside = format!("{key}.");
            if keys.iter().any(|other| other.starts_with(&inside) && renamed(other).is_some()) {
                continue;
            }
            let origin = layer.origin(key);
            found.push(Problem { origin, ..Problem::new(key, format!("is called `{new}` now")) });
        }
    }
    SettingsError::of(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_names_the_new_one() {
        for (old, new) in RENAMED {
            let error = check(&[Layer::argument(&format!("{old}=1")).unwrap()]).unwrap_err().to_string();
            assert_eq!(error, format!("argument `{old}=1`: {old}: is called `{new}` now"));
            assert!(check(&[Layer::argument(&format!("{new}=1")).unwrap()]).is_ok());
            let (table, key) = old.rsplit_once('.').unwrap();
            let file = Layer::file(&format!("\n[{table}]\n{key} = 1\n"), "old.toml").unwrap();
            let error = check(&[file]).unwrap_err().to_string();
            assert!(error.starts_with("old.toml line 3: ") && error.contains(new), "{error}");
        }
        let file = Layer::file("[prompt]\nverl_agent_parsing = true\n", "old.toml").unwrap();
        let error = check(&[file]).unwrap_err().to_string();
        assert!(
            error.starts_with("old.toml line 2: prompt.verl_agent_parsing")
                && error.contains("prompt.template")
                && error.contains("blocks = \"any\""),
            "{error}"
        );
    }
}
