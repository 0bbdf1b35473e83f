use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use turnwise_model::{GgufType, WeightType};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::run::export::{ExportOptions, Exported, export, export_gguf};
use turnwise_train::{Phase, Position, RunDirectory};
use turnwise_trajectory_io::{ExportFormat, ReadOptions, export as trajectories, read_conversations};

use super::card::Card;
use super::is_run;
use super::output::{check_output_of, write_text};
use crate::ui;

/// Export a policy, or with --format a run's trajectories, for use in other programs.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// A run directory (newest checkpoint), a checkpoint, or a model or adapter folder. With
    /// --format: a run directory, or a trajectory file that `turnwise credit` reads.
    policy: PathBuf,
    /// Output folder: a model for `transformers`, or an adapter for PEFT. With --gguf, a file. With
    /// --format, a file: .parquet, .jsonl or .jsonl.zst for messages, .jsonl (or a folder) for
    /// atif, .jsonl for verl, .parquet for trl.
    out: PathBuf,
    /// Export trajectories in this format: messages (OpenAI messages in a Hugging Face dataset),
    /// atif (Harbor), verl (rollout dump) or trl (prompts and completions).
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["merge", "dtype"])]
    format: Option<ExportFormat>,
    /// Export only the trajectories of this step of the run; repeatable [default: all steps].
    #[arg(long, value_name = "N", requires = "format")]
    step: Vec<u64>,
    /// Merge the adapter into its base model and write the full model.
    #[arg(long)]
    merge: bool,
    /// Replace OUT if it already exists.
    #[arg(long)]
    force: bool,
    /// Data type of the exported weights.
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
    /// Also write a model card to OUT/README.md: method, environment, success rates, settings.
    #[arg(long, conflicts_with_all = ["format", "gguf"])]
    card: bool,
    /// Write one GGUF file for llama.cpp and Ollama with this data type; adapters are merged.
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with_all = ["format", "merge", "dtype"])]
    gguf: Option<Gguf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Gguf {
    /// Half precision.
    F16,
    /// 8 bits per weight, plus a scale per block of 32.
    #[value(name = "q8_0")]
    Q8_0,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Dtype {
    /// The trained weights, not rounded.
    #[default]
    F32,
    /// Rounded to bf16: half the size, usual for serving.
    Bf16,
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    if let Some(format) = args.format {
        return write_trajectories(args, format);
    }
    if let Some(gguf) = args.gguf {
        let number_type = match gguf {
            Gguf::F16 => GgufType::F16,
            Gguf::Q8_0 => GgufType::Q8_0,
        };
        export_gguf(&args.policy, &args.out, number_type, args.force)?;
        ui::print(&format!("model written to {}", args.out.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let dtype = match args.dtype {
        Dtype::F32 => WeightType::F32,
        Dtype::Bf16 => WeightType::Bf16,
    };
    let options = ExportOptions { merge: args.merge, force: args.force, dtype };
    let out = args.out.display();
    let card = if args.card { Some(Card::of_policy(&args.policy)?) } else { None };
    let exported = export(&args.policy, &args.out, options)?;
    if let Some(card) = card {
        let text = card.markdown(matches!(exported, Exported::Adapter(_)))?;
        write_text("--card", &args.out.join("README.md"), &text)?;
    }
    ui::print(&match exported {
        Exported::Model => format!("model written to {out}"),
        Exported::Merged => format!("model with its adapter merged in written to {out}"),
        Exported::Adapter(base) => format!("adapter written to {out}; it stands on {base}"),
    });
    Ok(ExitCode::SUCCESS)
}

fn write_trajectories(args: &ExportArgs, format: ExportFormat) -> anyhow::Result<ExitCode> {
    let out = &args.out;
    trajectories::check_name(out, format)?;
    if out.extension().is_some() {
        check_output_of("OUT", out, &args.policy, "trajectories")?;
    }
    if out.exists() && !args.force {
        bail!("{}: exists already; name another file, or replace it with --force", out.display());
    }
    let found = if is_run(&args.policy) {
        of_run(&args.policy, &args.step)?
    } else {
        if !args.step.is_empty() {
            bail!("--step: {} is not a run directory; leave it out", args.policy.display());
        }
        of_file(&args.policy)?
    };
    if found.is_empty() {
        bail!("{}: has no trajectories", args.policy.display());
    }
    trajectories::write(out, format, &found)?;
    let turns: usize = found.iter().map(|one| one.conversation.turns()).sum();
    ui::print(&format!(
        "{} trajectories with {turns} turns written to {} as {}",
        found.len(),
        out.display(),
        format.name()
    ));
    let summed = matches!(format, ExportFormat::Verl | ExportFormat::Trl);
    let early = |one: &trajectories::Exported| {
        let rewards = one.conversation.rewards.as_deref().unwrap_or_default();
        rewards.iter().rev().skip(1).any(|&reward| reward != 0.0)
    };
    if summed && found.iter().any(early) {
        ui::print(&format!(
            "note: {} has one reward per trajectory; those of its turns are summed",
            format.name()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn of_run(run: &Path, steps: &[u64]) -> anyhow::Result<Vec<trajectories::Exported>> {
    let directory = RunDirectory::open(run)?;
    let known = directory.trajectory_steps()?;
    if let Some(missing) = steps.iter().find(|step| !known.contains(step)) {
        let known: Vec<String> = known.iter().map(u64::to_string).collect();
        bail!(
            "--step {missing}: {} has no trajectories of it; it has those of {}",
            run.display(),
            known.join(", ")
        );
    }
    let mut found = Vec::new();
    for step in known.into_iter().filter(|step| steps.is_empty() || steps.contains(step)) {
        let path = directory.trajectories(Position { phase: Phase::Rl, step });
        found.extend(read_trajectories(&path)?.iter().map(trajectories::Exported::from));
    }
    Ok(found)
}

fn of_file(path: &Path) -> anyhow::Result<Vec<trajectories::Exported>> {
    if let Ok(own) = read_trajectories(path)
        && !own.is_empty()
    {
        return Ok(own.iter().map(trajectories::Exported::from).collect());
    }
    let read = read_conversations(path, &ReadOptions::default())?;
    read.notes.iter().for_each(|note| ui::print(&format!("note: {note}")));
    Ok(read.conversations.into_iter().map(trajectories::Exported::from).collect())
}
