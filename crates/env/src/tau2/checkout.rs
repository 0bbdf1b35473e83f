//! Reads a local tau2-bench checkout.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use turnwise_core::{EnvError, Tool};

use super::domain::{Base, Tau2Domain};
use super::ordered::Ordered;
use super::source::tools;
use super::task::Tau2Task;
use super::telecom::{DONE, Phone, Telecom};

/// Name of the split that contains all tasks if the checkout has no split file.
const BASE: &str = "base";

/// One domain's data.
#[derive(Debug)]
pub struct Checkout {
    /// The domain.
    pub domain: Tau2Domain,
    /// Tasks in file order.
    pub tasks: Vec<Tau2Task>,
    /// Name and task ids of each split; the training split comes first.
    pub splits: Vec<(String, Vec<String>)>,
    /// The agent's policy.
    pub policy: String,
    /// The agent's tools.
    pub tools: Vec<Tool>,
    /// Instructions for the language model that simulates the user.
    pub guidelines: String,
    /// The database.
    pub base: Base,
}

fn read(path: &Path) -> Result<String, EnvError> {
    std::fs::read_to_string(path).map_err(|source| EnvError::io(path, source))
}

fn toml<T>(path: &Path, parse: impl Fn(&str) -> Result<T, toml::de::Error>) -> Result<T, EnvError> {
    parse(&read(path)?).map_err(|error| EnvError::file(path, error.to_string().trim()))
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, EnvError> {
    serde_json::from_str(&read(path)?).map_err(|error| EnvError::file(path, error.to_string()))
}

fn data(folder: &Path) -> Result<PathBuf, EnvError> {
    let data = folder.join("data/tau2");
    if data.join("domains").is_dir() {
        return Ok(data);
    }
    Err(EnvError::file(
        folder,
        "there is no `data/tau2/domains` here; `data` must name a checkout of tau2-bench \
         (git clone https://github.com/sierra-research/tau2-bench)",
    ))
}

impl Checkout {
    /// Reads a domain.
    ///
    /// # Errors
    /// Fails if the folder is not a checkout, or a file is missing or malformed.
    pub fn read(folder: &Path, domain: Tau2Domain) -> Result<Self, EnvError> {
        let data = data(folder)?;
        let root = data.join("domains").join(domain.name());
        let path = root.join("tasks.json");
        let tasks: Vec<Tau2Task> = json(&path)?;
        for task in &tasks {
            if let Some(reason) = task.fault() {
                return Err(EnvError::file(&path, format!("task {} {reason}", task.id)));
            }
        }
        let splits = splits(&root.join("split_tasks.json"), &tasks)?;
        let sources = folder.join("src/tau2/domains").join(domain.name());
        let described = |name: &str| {
            let path = sources.join(name);
            let tools = tools(&read(&path)?).map_err(|error| EnvError::file(&path, error.to_string()))?;
            let is_empty = tools.is_empty();
            if is_empty {
                Err(EnvError::file(&path, "there is no function with the decorator `is_tool`"))
            } else {
                Ok(tools)
            }
        };
        let mut tools = described("tools.py")?;
        let (base, policy) = match domain {
            Tau2Domain::Retail => {
                (Base::Retail(Arc::new(json(&root.join("db.json"))?)), read(&root.join("policy.md"))?)
            }
            Tau2Domain::Telecom => {
                tools.extend(described("user_tools.py")?);
                tools.extend(Tool::from_json(DONE).ok());
                let carrier = toml(&root.join("db.toml"), |text| toml::from_str(text))?;
                let phone = toml(&root.join("user_db.toml"), Phone::read)?;
                (Base::Telecom(Box::new(Telecom::new(carrier, phone))), solo_policy(&root)?)
            }
        };
        let guidelines = read(&data.join("user_simulator/simulation_guidelines.md"))?;
        Ok(Self { domain, tasks, splits, policy, tools, guidelines, base })
    }
}

fn solo_policy(root: &Path) -> Result<String, EnvError> {
    let (main, manual) =
        (read(&root.join("main_policy_solo.md"))?, read(&root.join("tech_support_manual.md"))?);
    Ok(format!(
        "<main_policy>\n{main}\n</main_policy>\n<tech_support_policy>\n{manual}\n</tech_support_policy>"
    ))
}

/// Returns the splits, `train` first. Without a split file, all tasks form one split.
fn splits(path: &Path, tasks: &[Tau2Task]) -> Result<Vec<(String, Vec<String>)>, EnvError> {
    if !path.is_file() {
        return Ok(vec![(BASE.to_owned(), tasks.iter().map(|task| task.id.clone()).collect())]);
    }
    let named: Ordered<Vec<String>> = json(path)?;
    let places: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(place, task)| (task.id.as_str(), place)).collect();
    let mut found = Vec::new();
    for (name, ids) in named.iter() {
        // The file may name tasks of other files.
        let mut known: Vec<&String> = ids.iter().filter(|id| places.contains_key(id.as_str())).collect();
        known.sort_by_key(|id| places.get(id.as_str()));
        if !known.is_empty() {
            found.push((name.to_owned(), known.into_iter().cloned().collect()));
        }
    }
    found.sort_by_key(|(name, _)| name != "train");
    Ok(found)
}
