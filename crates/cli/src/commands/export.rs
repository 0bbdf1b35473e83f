//! `turnwise export`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use turnwise_model::WeightType;
use turnwise_train::run::export::{ExportOptions, Exported, export};

use crate::ui;

/// Write a policy for other programs.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// A run directory (its newest checkpoint), a checkpoint, or the folder of a model or an adapter.
    policy: PathBuf,
    /// Output folder: a model for `transformers`, or an adapter for PEFT.
    out: PathBuf,
    /// Merge an adapter into its base and write the full model.
    #[arg(long)]
    merge: bool,
    /// Replace OUT if it already holds a model or an adapter.
    #[arg(long)]
    force: bool,
    /// Number type of a model's weights.
    #[arg(long, value_enum, default_value_t)]
    dtype: Dtype,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Dtype {
    /// The trained weights, exactly.
    #[default]
    F32,
    /// Rounded to bf16, half the size; the usual type for serving.
    Bf16,
}

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let dtype = match args.dtype {
        Dtype::F32 => WeightType::F32,
        Dtype::Bf16 => WeightType::Bf16,
    };
    let options = ExportOptions { merge: args.merge, force: args.force, dtype };
    let out = args.out.display();
    ui::print(&match export(&args.policy, &args.out, options)? {
        Exported::Model => format!("model written to {out}"),
        Exported::Merged => format!("model with its adapter merged in written to {out}"),
        Exported::Adapter(base) => format!("adapter written to {out}; it stands on {base}"),
    });
    Ok(ExitCode::SUCCESS)
}
