use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

/// Upload a model or adapter to the Hugging Face Hub in one commit.
///
/// Create the folder with `turnwise export RUN DIR --card`. The token comes from HF_TOKEN or
/// `hf auth login`; HF_ENDPOINT selects another hub. Rerun the command to resume: files already on
/// the hub are skipped. Requires a build with --features hub.
#[derive(Args)]
pub(crate) struct PushArgs {
    /// Model or adapter folder. Hidden files are not uploaded.
    dir: PathBuf,
    /// Repository to upload to: ORG/NAME, or ORG/NAME@BRANCH for an existing branch.
    repo: String,
    /// Create the repository if it does not exist.
    #[arg(long)]
    create: bool,
    /// Create the repository as private; fails if the repository exists and is public.
    #[arg(long)]
    private: bool,
    /// First line of the commit message.
    #[arg(long, value_name = "TEXT", default_value = "Upload with Turnwise")]
    message: String,
}

#[cfg(feature = "hub")]
pub(crate) fn run(args: &PushArgs) -> anyhow::Result<ExitCode> {
    use turnwise_policy::push::{Push, push};

    use crate::ui;

    let options = Push {
        folder: args.dir.clone(),
        repository: args.repo.clone(),
        create: args.create,
        private: args.private,
        message: args.message.clone(),
    };
    let pushed = push(&options, &mut |note| ui::print(&note))?;
    let (large, bytes) = pushed.uploaded;
    ui::print(&match pushed.commit {
        Some(commit) => format!(
            "{} files committed as {} ({large} large files sent, {:.1} MB): {}",
            pushed.files,
            commit.get(..8).unwrap_or(&commit),
            bytes as f64 / 1e6,
            pushed.url
        ),
        None => format!("nothing to do, the hub has all files: {}", pushed.url),
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "hub"))]
pub(crate) fn run(_args: &PushArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without the hub: build it with `cargo build --release -p turnwise-cli --features hub`, \
         or upload the folder with `hf upload REPO DIR`"
    )
}
