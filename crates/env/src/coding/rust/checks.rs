//! Evaluates calls on a crate with `rustc`, without cargo or dependencies.
//!
//! A generated program writes the `{:?}` text of each call's value. The expected values stay
//! outside the sandbox, so that the code under test cannot read them.

use std::fmt::Write as _;

use turnwise_sandbox::{Command, Files, Outcome, Rust};

/// Compiler flags for fast compilation and small programs. The flags select the linker `bfd`,
/// because the linker bundled with newer compilers needs `/proc`, which the sandbox lacks.
pub(in super::super) const FLAGS: &str = "--edition 2021 -C debuginfo=0 -C opt-level=0 -C codegen-units=1 -C strip=debuginfo -C link-arg=-fuse-ld=bfd -A warnings";

pub(in super::super) const PANIC: &str = "!panic";

const FOLDER: &str = ".checks";

/// Returns the command that compiles the crate `name` and runs the program added by [`files`].
pub(in super::super) fn command(rust: &Rust, name: &str) -> Command {
    let rustc = rust.program.display();
    let line = format!(
        "set -e\n\"{rustc}\" {FLAGS} --crate-type rlib --crate-name {name} --out-dir /tmp/checks src/lib.rs\n\
         \"{rustc}\" {FLAGS} --crate-name checks --extern {name}=/tmp/checks/lib{name}.rlib -o /tmp/checks/run \
         {FOLDER}/main.rs\nexec /tmp/checks/run"
    );
    Command::shell(&line)
}

/// Adds the program that evaluates the calls, and removes any other files from its folder.
pub(in super::super) fn files(mut files: Files, name: &str, calls: &[String]) -> Files {
    files.retain(|path, _| path != FOLDER && !path.starts_with(&format!("{FOLDER}/")));
    files.insert(format!("{FOLDER}/main.rs"), program(name, calls).into_bytes());
    files
}

fn program(name: &str, calls: &[String]) -> String {
    let mut text = format!(
        "#[allow(unused_imports)]\nuse {name}::*;\nuse std::io::Write as _;\n\n\
         fn turnwise_check(call: impl FnOnce() -> std::string::String) {{\n    \
         let value = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));\n    \
         let value = value.unwrap_or_else(|_| \"{PANIC}\".into()).replace('\\n', \"\\\\n\");\n    \
         let mut file = std::fs::OpenOptions::new();\n    \
         let mut file = file.create(true).append(true).open(\"/work/{FOLDER}/values\").unwrap();\n    \
         file.write_all(std::format!(\"{{value}}\\n\").as_bytes()).unwrap();\n}}\n\nfn main() {{\n"
    );
    for call in calls {
        let _ = writeln!(text, "    turnwise_check(|| std::format!(\"{{:?}}\", {call}));");
    }
    text.push_str("}\n");
    text
}

/// Returns the values of the calls before the first one that did not finish.
pub(in super::super) fn values(outcome: &Outcome) -> Vec<String> {
    let bytes = outcome.files.get(&format!("{FOLDER}/values")).map(Vec::as_slice).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.split('\n').collect();
    // The last line is empty or cut off.
    lines.pop();
    lines.into_iter().map(str::to_owned).collect()
}
