//! Memory of a run, and settings that reduce it.

use std::fmt::{self, Display};

use turnwise_model::{Device, LoraConfig, MemoryPlan, ModelConfig, PlanPhase};

use crate::TrainError;
use crate::config::{Config, Registries};
use crate::plan::sizes::settings;
use crate::record::observer::{Event, Observer};
use crate::rollout::pictures::drawn_size;
use crate::setup::World;

pub(crate) const GIB: f64 = (1u64 << 30) as f64;

/// Memory plan of a run.
#[derive(Clone, Debug)]
pub struct MemoryReport {
    /// Main memory.
    pub machine: Memory,
    /// NVIDIA device (`policy.device = "cuda"`).
    pub device: Option<Memory>,
    /// Settings that save memory, with the resulting bytes.
    pub advice: Vec<(String, u64)>,
}

/// Required and available memory of the machine or device.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Plan of one process.
    pub plan: MemoryPlan,
    /// Available bytes, or the memory limit of this process if that is smaller; `None` if unknown.
    pub size: Option<u64>,
}

impl Memory {
    fn fits(&self) -> Option<bool> {
        self.size.map(|size| self.plan.peak() <= size)
    }
}

impl MemoryReport {
    /// Plans the memory of a config with a model of this shape. `drawn` is the height and width of
    /// pictures; if unknown, the plan assumes the largest that fit `rollout.max_model_len`.
    pub fn new(
        config: &Config,
        registries: &Registries,
        model: &ModelConfig,
        drawn: Option<[usize; 2]>,
    ) -> Self {
        let settings = settings(config, registries, model, drawn);
        let (plan, device) = match config.policy.device {
            Device::Cpu => (MemoryPlan::new(model, &settings), None),
            Device::Cuda => {
                let size = config.policy.device_memory.map(|gib| (gib * GIB) as u64);
                let size = size.or_else(|| config.policy.device.memory());
                let device = Memory { plan: MemoryPlan::on_device(model, &settings), size };
                (MemoryPlan::beside_device(model, &settings), Some(device))
            }
        };
        let machine = Memory { plan, size: machine_memory() };
        let mut report = Self { machine, device, advice: Vec::new() };
        report.advice = report.less(config, registries, model, drawn);
        report
    }

    /// Returns the device's memory if there is one, else the machine's.
    pub(crate) fn trained_in(&self) -> &Memory {
        self.device.as_ref().unwrap_or(&self.machine)
    }

    /// Returns the peak memory for training in bytes.
    pub fn total(&self) -> u64 {
        self.trained_in().plan.peak()
    }

    /// Returns true if the machine's memory is at least 4/3 of what sampling and training need
    /// together ([`MemoryPlan::sum`]). Always false if the run trains on a device.
    pub fn has_room_to_keep_freed_memory(&self) -> bool {
        let machine = &self.machine;
        self.device.is_none() && machine.size.is_some_and(|size| 4 * machine.plan.sum() <= 3 * size)
    }

    /// Returns whether the run fits; `None` if unknown.
    pub fn fits(&self) -> Option<bool> {
        let all = std::iter::once(&self.machine).chain(&self.device).map(Memory::fits);
        all.reduce(|one, other| match (one, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (one, other) => one.and(other),
        })?
    }

    /// Rejects a run that does not fit; with `ignore`, returns the reason instead.
    ///
    /// # Errors
    /// Returns [`TrainError::Memory`] if the run does not fit.
    pub fn check(&self, ignore: bool) -> Result<Option<String>, TrainError> {
        match self.shortage() {
            None => Ok(None),
            Some(reason) if ignore => Ok(Some(format!("warning: {reason}"))),
            Some(reason) => Err(TrainError::Memory(reason)),
        }
    }

    fn shortage(&self) -> Option<String> {
        let device = self.device.iter().map(|device| ("device", device));
        let (place, memory) =
            device.chain([("machine", &self.machine)]).find(|(_, memory)| memory.fits() == Some(false))?;
        let size = memory.size?;
        let mut text = format!(
            "this run may need {:.1} GiB of memory and the {place} has {:.1} GiB",
            memory.plan.peak() as f64 / GIB,
            size as f64 / GIB
        );
        if let Some((change, total)) = self.advice.first().filter(|_| self.trained_in().fits() == Some(false))
        {
            text.push_str(&format!("; {change} would bring it to {:.1} GiB", *total as f64 / GIB));
        }
        text.push_str(" (turnwise train ... --dry-run shows all of it)");
        Some(text)
    }

    fn less(
        &self,
        config: &Config,
        registries: &Registries,
        model: &ModelConfig,
        drawn: Option<[usize; 2]>,
    ) -> Vec<(String, u64)> {
        let mut changes: Vec<(String, Config)> = Vec::new();
        let mut change = |text: String, with: &dyn Fn(&mut Config)| {
            let mut changed = config.clone();
            with(&mut changed);
            changes.push((text, changed));
        };
        change("train.recompute_layers = true".into(), &|config| config.train.recompute_layers = true);
        if config.train.num_workers > 1 {
            change("train.num_workers = 1".into(), &|config| config.train.num_workers = 1);
        }
        if config.policy.lora.is_none() {
            change("policy.lora = { rank = 32 }".into(), &|config| {
                config.policy.lora = Some(LoraConfig { rank: 32, ..LoraConfig::default() });
            });
        }
        let longest = config.rollout.max_model_len;
        if config.train.micro_batch_tokens > longest {
            change(format!("train.micro_batch_tokens = {longest}"), &|config| {
                config.train.micro_batch_tokens = longest;
            });
        }
        let slots = config.rollout.max_num_seqs / 4;
        if slots > 0 {
            change(format!("rollout.max_num_seqs = {slots}"), &|config| config.rollout.max_num_seqs = slots);
        }
        let total = |config: &Config| {
            let settings = settings(config, registries, model, drawn);
            match config.policy.device {
                Device::Cpu => MemoryPlan::new(model, &settings),
                Device::Cuda => MemoryPlan::on_device(model, &settings),
            }
            .peak()
        };
        let mut found: Vec<(String, u64)> =
            changes.into_iter().map(|(text, config)| (text, total(&config))).collect();
        found.retain(|(_, after)| *after < self.total());
        found.sort_by_key(|(_, after)| *after);
        found
    }
}

pub(crate) fn check(
    config: &Config,
    registries: &Registries,
    model: &ModelConfig,
    world: Option<&World>,
    ignore: bool,
    observer: &mut dyn Observer,
) -> Result<(), TrainError> {
    let drawn = world.and_then(|world| drawn_size(config, world));
    if let Some(warning) = MemoryReport::new(config, registries, model, drawn).check(ignore)? {
        observer.event(Event::Note(warning));
    }
    Ok(())
}

fn size(bytes: u64) -> String {
    if bytes as f64 >= 0.1 * GIB {
        format!("{:.2} GiB", bytes as f64 / GIB)
    } else {
        format!("{:.2} MiB", bytes as f64 * 1024.0 / GIB)
    }
}

impl Memory {
    fn write_items(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, title) in [
            (PlanPhase::Always, "always"),
            (PlanPhase::Sampling, "while sampling"),
            (PlanPhase::Training, "while training"),
        ] {
            let items = || self.plan.items.iter().filter(|item| item.phase == phase);
            if items().next().is_none() {
                continue;
            }
            writeln!(to, "{title:<37}{:>12}", size(self.plan.of(phase)))?;
            for item in items() {
                writeln!(to, "  {:<22}{:>12}             {}", item.name, size(item.bytes), item.detail)?;
            }
        }
        writeln!(to, "{:<37}{:>12}", "at most at a time", size(self.plan.peak()))
    }

    fn write_verdict(&self, to: &mut fmt::Formatter<'_>, place: &str, unknown: &str) -> fmt::Result {
        match self.size {
            Some(there_is) if self.fits() == Some(true) => {
                let share = 100.0 * self.plan.peak() as f64 / there_is as f64;
                write!(to, "fits: {share:.0} % of this {place}'s {}", size(there_is))
            }
            Some(there_is) => write!(to, "DOES NOT FIT this {place}'s {}", size(there_is)),
            None => to.write_str(unknown),
        }
    }
}

impl Display for MemoryReport {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(device) = &self.device {
            writeln!(to, "on the device:")?;
            device.write_items(to)?;
            let unknown =
                "the device's size is not known here; set policy.device_memory to its GiB to have it checked";
            device.write_verdict(to, "device", unknown)?;
            writeln!(to, "\non the machine beside it:")?;
        }
        self.machine.write_items(to)?;
        writeln!(to, "  (besides: the program, the world and the text of a step's trajectories)")?;
        self.machine.write_verdict(to, "machine", "this machine does not say how much memory it has")?;
        if self.has_room_to_keep_freed_memory() {
            let most = size(self.machine.plan.sum());
            write!(to, "; there is room to keep freed memory for the next phase: at most {most} in all")?;
        }
        if self.trained_in().fits() == Some(false) {
            for (change, total) in &self.advice {
                write!(to, "\n  {change} brings it to {}", size(*total))?;
            }
            if self.advice.is_empty() {
                write!(to, "\n  no single setting brings it down; a smaller model or more memory would")?;
            }
        }
        Ok(())
    }
}

/// Returns the machine's memory in bytes, or the control group's smaller limit.
pub fn machine_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").as_deref().and_then(total_of);
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .into_iter()
        .find_map(|path| read(path)?.trim().parse::<u64>().ok());
    match (total, limit) {
        (Some(total), Some(limit)) => Some(total.min(limit)),
        (total, limit) => total.or(limit),
    }
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use turnwise_model::ParameterLayout;

    use super::*;
    use crate::config::{ConfigSource, load};
    use crate::plan::sizes::shared_folder;

    fn config(overrides: &[&str]) -> Config {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let preset = Some("quickstart".into());
        load(&ConfigSource { preset, overrides, ..ConfigSource::default() }).unwrap()
    }

    fn total(overrides: &[&str]) -> u64 {
        let config = config(overrides);
        let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
        MemoryReport::new(&config, &Registries::builtin(), &model, None).total()
    }

    #[test]
    fn what_a_run_has_more_of_needs_more() {
        let base = total(&["policy.scratch.hidden_size=512"]);
        for more in [
            "train.num_workers=4",
            "train.micro_batch_tokens=20000",
            "objective.kl.coef=0.1",
            "credit.estimator={kind=\"ppo\"}",
            "objective.normalization.delta=2.0",
            "policy.scratch.layers=8",
            "rollout.max_staleness=1",
        ] {
            assert!(total(&["policy.scratch.hidden_size=512", more]) > base, "{more}");
        }
        for less in ["train.num_workers=1", "train.recompute_layers=true"] {
            assert!(total(&["policy.scratch.hidden_size=512", less]) < base, "{less}");
        }
    }

    #[test]
    fn a_larger_round_has_more_sequences_under_way() {
        let sampling = |selection: &str| {
            let few =
                ["rollout.tasks_per_step=1", "rollout.group_size=4", "rollout.num_workers=1", "eval.tasks=1"];
            let config = config(&[&few[..], &["rollout.max_num_seqs=64", selection]].concat());
            let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
            MemoryReport::new(&config, &Registries::builtin(), &model, None)
                .machine
                .plan
                .of(PlanPhase::Sampling)
        };
        let all = sampling("rollout.filter_groups={kind=\"all\"}");
        assert!(sampling("rollout.filter_groups={kind=\"rejection\", oversample=8}") > 2 * all);
    }

    #[test]
    fn servers_have_memory_of_their_own() {
        let servers = "rollout.engine={urls=[\"http://127.0.0.1:1\"], adapter_dir=\"a\"}";
        let sampling = |more: &[&str]| {
            let config = config(more);
            let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
            MemoryReport::new(&config, &Registries::builtin(), &model, None)
                .machine
                .plan
                .of(PlanPhase::Sampling)
        };
        assert!(sampling(&["policy.lora={rank=4}"]) > 0);
        assert_eq!(sampling(&["policy.lora={rank=4}", servers]), 0);
        assert_eq!(sampling(&["policy.lora={rank=4}", servers, "rollout.max_staleness=2"]), 0);
    }

    #[test]
    fn an_adapter_that_is_merged_for_servers_takes_a_copy_of_the_model_and_its_folder() {
        let servers = |weights: &str| {
            format!(
                "rollout.engine={{urls=[\"http://127.0.0.1:1\"], adapter_dir=\"a\", weights=\"{weights}\"}}"
            )
        };
        let planned = |lora: bool, weights: &str| {
            let servers = servers(weights);
            let config = if lora { config(&["policy.lora={rank=4}", &servers]) } else { config(&[&servers]) };
            let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
            let parameters = ParameterLayout::new(&model).len;
            let plan = MemoryReport::new(&config, &Registries::builtin(), &model, None).machine.plan;
            (plan.of(PlanPhase::Sampling), shared_folder(&config, parameters), 4 * parameters as u64)
        };
        let (memory, disk, model) = planned(true, "full");
        assert_eq!((memory, disk), (model, Some(model)));
        let (memory, disk, model) = planned(false, "full");
        assert_eq!((memory, disk), (0, Some(model)));
        let (memory, disk, _) = planned(true, "adapter");
        assert_eq!((memory, disk), (0, None));
    }

    #[test]
    fn what_does_not_fit_is_reported_with_a_hint() {
        let config =
            config(&["policy.scratch.hidden_size=1024", "train.num_workers=8", "rollout.num_workers=8"]);
        let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
        let mut report = MemoryReport::new(&config, &Registries::builtin(), &model, None);
        report.machine.size = Some(report.total());
        assert!(report.check(false).unwrap().is_none() && report.to_string().contains("fits: 100 %"));
        assert!(!report.to_string().contains("room to keep"));
        let sum = report.machine.plan.sum();
        assert!(sum > report.total());
        for (size, keeps) in [(sum.div_ceil(3) * 4, true), (sum, false), (sum / 3 * 4 - 4, false)] {
            report.machine.size = Some(size);
            assert_eq!(report.to_string().contains("room to keep freed memory"), keeps, "{size}");
        }
        report.machine.size = Some(report.total() - 1);
        let (text, warning) = (report.to_string(), report.check(true).unwrap().unwrap());
        assert!(text.contains("DOES NOT FIT"), "{text}");
        assert!(text.contains("train.recompute_layers = true brings it to"), "{text}");
        assert!(warning.contains("train.num_workers = 1 would bring it to"), "{warning}");
        let error = report.check(false).unwrap_err().to_string();
        assert!(
            error.contains("train.num_workers = 1 would") && error.contains("--ignore-memory"),
            "{error}"
        );
        assert!(report.advice.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn a_device_has_a_plan_of_its_own_and_is_held_against_its_size() {
        let shape = ["policy.scratch.hidden_size=1024", "policy.scratch.layers=8", "policy.device=cuda"];
        let report = |more: &[&str]| {
            let config = config(&[&shape[..], more].concat());
            let model = config.policy.scratch.model_config(4096, config.rollout.max_model_len);
            (
                MemoryReport::new(&config, &Registries::builtin(), &model, None),
                ParameterLayout::new(&model).len as u64,
            )
        };
        let (full, weights) = report(&["policy.device_memory=80"]);
        let plan = &full.device.as_ref().unwrap().plan;
        let own = ["weights", "master weights", "moments", "gradients"];
        assert_eq!(own.iter().map(|name| plan.item(name)).sum::<u64>(), 18 * weights);
        assert_eq!((plan.item("reference weights"), full.fits()), (0, Some(true)));
        let (mut reference, _) = report(&["objective.kl.coef=0.1", "train.num_workers=8"]);
        reference.machine.size = Some(u64::MAX / 4);
        assert!(!reference.has_room_to_keep_freed_memory());
        assert_eq!(reference.device.as_ref().unwrap().plan.item("reference weights"), 2 * weights);
        let unknown = reference.device.as_ref().unwrap().size.is_none();
        assert_eq!(reference.to_string().contains("policy.device_memory"), unknown, "{reference}");
        let (small, _) = report(&["policy.device_memory=1.5", "objective.kl.coef=0.1"]);
        let (text, warning) = (small.to_string(), small.check(true).unwrap().unwrap());
        assert!(text.contains("DOES NOT FIT this device's 1.50 GiB"), "{text}");
        assert!(text.contains("policy.lora = { rank = 32 } brings it to"), "{text}");
        assert!(warning.contains("the device has 1.5 GiB; ") && small.fits() == Some(false), "{warning}");
        assert!(report(&["policy.device=cpu"]).0.device.is_none());
    }

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       24064 kB\n"), Some(24064 * 1024));
        assert_eq!(total_of("MemTotal: many"), None);
    }
}
