//! The `turnwise` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    turnwise_cli::run(turnwise_cli::builtin())
}
