//! Tests of the documentation: links resolve, the guide's contents list every page, the command
//! reference equals the help texts, and the commands in it parse.
//!
//! `TURNWISE_WRITE_DOCS=1` writes the command reference instead of comparing it.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All Markdown files of the repository, built ones and hidden folders left out.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "runs" {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The lines outside of code blocks, and the commands in `sh` and `console` blocks (there after `$ `).
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut shell, mut block) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_none() { Some(language.trim()) } else { None };
        } else {
            match block {
                None => prose.push(line),
                Some("sh") => shell.push(line),
                Some("console") => shell.extend(line.strip_prefix("$ ")),
                Some(_) => {}
            }
        }
    }
    (prose, shell)
}

/// The targets of the links in a line, code in backticks left out.
pub(super) fn links(line: &str) -> Vec<String> {
    let plain: String =
        line.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect();
    let targets = plain.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// The anchor that a heading gets.
pub(super) fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Problem of a link's target in a file; none for addresses on the net.
fn problem(file: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
    let target_file = if path.is_empty() { file.to_owned() } else { file.parent().unwrap().join(path) };
    if !target_file.exists() {
        return Some(format!("{}: {target} does not exist", file.display()));
    }
    let anchored = wanted.is_empty()
        || target_file.extension().is_none_or(|extension| extension != "md")
        || split(&fs::read_to_string(&target_file).unwrap())
            .0
            .iter()
            .any(|line| line.starts_with('#') && anchor(line) == wanted);
    (!anchored).then(|| format!("{}: {target} names no heading", file.display()))
}

#[test]
fn links_lead_somewhere() {
    let mut files = Vec::new();
    pages(&root(), &mut files);
    assert!(files.len() > 30, "{} files", files.len());
    let (mut found, mut count) = (Vec::new(), 0);
    for file in &files {
        for line in split(&fs::read_to_string(file).unwrap()).0 {
            for target in links(line) {
                count += 1;
                found.extend(problem(file, &target));
            }
        }
    }
    assert!(count > 50, "{count} links");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_wrong_link_is_found() {
    let file = root().join("README.md");
    assert_eq!(links("see [a](b.md) and `[c](d)`, [e](f.md#g \"title\")"), ["b.md", "f.md#g"]);
    assert!(problem(&file, "no-such-file.md").unwrap().contains("does not exist"));
    assert!(problem(&file, "ARCHITECTURE.md#no-such-heading").unwrap().contains("names no heading"));
    assert_eq!(problem(&file, "METHODS.md#how-the-numbers-are-proved"), None);
    assert_eq!(problem(&file, "https://example.org/"), None);
}

#[test]
fn the_guides_contents_list_every_page() {
    let source = root().join("docs");
    let mut files = Vec::new();
    pages(&source, &mut files);
    let summary = source.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).unwrap();
    let listed: BTreeSet<PathBuf> = text.lines().flat_map(links).map(|target| source.join(target)).collect();
    let present: BTreeSet<PathBuf> = files.into_iter().filter(|file| *file != summary).collect();
    assert_eq!(listed.difference(&present).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "listed, not there");
    assert_eq!(present.difference(&listed).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "there, not listed");
}

/// Targets of a guide's page that are outside of its folder, where the built guide has nothing.
fn outside(guide: &Path, file: &Path, text: &str) -> Vec<String> {
    let targets = split(text).0.into_iter().flat_map(links).filter(|target| !target.contains("://"));
    targets
        .filter(|target| {
            let path = target.split('#').next().unwrap_or_default();
            let there = file.parent().unwrap().join(path).canonicalize();
            !path.is_empty() && there.is_ok_and(|there| !there.starts_with(guide))
        })
        .map(|target| format!("{}: {target}", file.display()))
        .collect()
}

#[test]
fn links_of_the_guide_stay_in_it() {
    let guide = root().join("docs");
    let mut files = Vec::new();
    pages(&guide, &mut files);
    let found: Vec<String> =
        files.iter().flat_map(|file| outside(&guide, file, &fs::read_to_string(file).unwrap())).collect();
    assert_eq!(found, Vec::<String>::new(), "name such a file in code font instead");

    let page = guide.join("methods/index.md");
    assert_eq!(outside(&guide, &page, "[a](../results/sorl.md#b) [c](../../METHODS.md)").len(), 1);
}

fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_turnwise")).args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names under `Commands:` of a help text.
pub(super) fn subcommands(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter_map(|line| {
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split(' ').next()
    });
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn describe(command: &[&str], page: &mut String) {
    let text = help(command);
    let depth = if command.len() > 1 { "###" } else { "##" };
    let name = [&["turnwise"], command].concat().join(" ");
    let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let _ = write!(page, "\n{depth} {name}\n\n```text\n{}\n```\n", lines.trim_end());
    for name in subcommands(&text) {
        describe(&[command, &[name.as_str()]].concat(), page);
    }
}

#[test]
fn the_command_reference_is_what_the_program_says() {
    let mut page = String::from(
        "# Commands\n\nWhat `turnwise COMMAND --help` prints. Made by\n`TURNWISE_WRITE_DOCS=1 cargo test --release -p turnwise-cli --test it docs`.\n",
    );
    describe(&[], &mut page);
    let path = root().join("docs/reference/cli.md");
    if std::env::var_os("TURNWISE_WRITE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap();
    let first = stored.lines().zip(page.lines()).find(|(stored, now)| stored != now);
    assert!(
        stored == page,
        "docs/reference/cli.md is stale, first at {first:?}; write it again with TURNWISE_WRITE_DOCS=1"
    );
}

/// Commands of a shell: a line with a backslash at its end goes on in the next one.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let part = line.trim();
        let text = part.strip_suffix('\\').unwrap_or(part).trim_end();
        if let Some(command) = found.last_mut().filter(|_| goes_on) {
            command.push(' ');
            command.push_str(text);
        } else {
            found.push(text.to_owned());
        }
        goes_on = part.ends_with('\\');
    }
    found
}

/// The words of a command as a shell has them, quotes taken off, up to a comment.
fn words(command: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == '#' && word.is_none() => break,
            None if c.is_whitespace() => found.extend(word.take()),
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

/// The arguments of `turnwise`, up to a pipe; none where a command runs something else.
fn arguments(command: &str) -> Option<Vec<String>> {
    let mut words = words(command);
    let start = words.iter().position(|word| word == "turnwise")?;
    // Variables may be set before it.
    if !words[..start].iter().all(|word| word.contains('=')) {
        return None;
    }
    words.drain(..=start);
    let end = words.iter().position(|word| word == "|" || word == ">").unwrap_or(words.len());
    words.truncate(end);
    Some(words)
}

/// Arguments of `config check` for the sources of a command that reads a config; none for other commands, and where the
/// reader is to put something else in.
fn config_check(arguments: &[String]) -> Option<Vec<&str>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (["train" | "sft", rest @ ..] | ["config", "show" | "check", rest @ ..]) = words.as_slice() else {
        return None;
    };
    let mut found = vec!["config", "check"];
    let mut rest = rest.iter();
    while let Some(&word) = rest.next() {
        match word {
            // A resumed run has a config of its own.
            "--resume" => return None,
            "--dry-run" => {}
            "--runs" | "--warm-start" => {
                rest.next()?;
            }
            // Settings in a variable, and a file that the page tells how to write. A check opens no model and no data, so
            // that `path/to/model` does.
            _ if word.starts_with('$') || word.contains("=my-") => return None,
            _ => found.push(word),
        }
    }
    Some(found)
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let lines = ["A=1 turnwise train --preset grpo a.toml \\", "    'b={c=\"d e\"}' --runs x  # f", "ls"];
    let found = commands(&lines);
    assert_eq!(found.len(), 2, "{found:?}");
    let given = arguments(&found[0]).unwrap();
    assert_eq!(given, ["train", "--preset", "grpo", "a.toml", "b={c=\"d e\"}", "--runs", "x"]);
    let checked = ["config", "check", "--preset", "grpo", "a.toml", "b={c=\"d e\"}"];
    assert_eq!(config_check(&given).unwrap(), checked);
    assert_eq!(arguments("turnwise eval \"a b\" | head").unwrap(), ["eval", "a b"]);
    for other in ["turnwise train --resume runs/a", "turnwise train $S", "turnwise eval runs/a"] {
        assert_eq!(config_check(&arguments(other).unwrap()), None, "{other}");
    }
    assert_eq!((arguments(&found[1]), arguments("cargo run turnwise")), (None, None));
}

/// The commands of the guide and the README: known subcommands and options, configs that are there, and settings that can
/// be run.
#[test]
fn the_commands_of_the_documentation_are_commands() {
    let mut files = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    pages(&root().join("docs"), &mut files);
    let (mut count, mut checked, mut found) = (0, 0, Vec::new());
    let run = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_turnwise")).current_dir(root()).args(words).output().unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for file in files {
        for line in commands(&split(&fs::read_to_string(&file).unwrap()).1) {
            let Some(given) = arguments(&line) else { continue };
            count += 1;
            // A variable of the shell stands for a number here as well as for a name.
            let value = |word| if str::starts_with(word, '$') { "1" } else { word };
            let words: Vec<&str> = given.iter().map(|word| value(word.as_str())).chain(["--help"]).collect();
            let mut problems: Vec<String> = run(&words).into_iter().collect();
            for config in
                given.iter().filter(|word| word.starts_with("configs/") || word.starts_with("examples/"))
            {
                if !root().join(config).exists() {
                    problems.push(format!("there is no {config}"));
                }
            }
            if let Some(check) = config_check(&given) {
                checked += 1;
                // A program without a feature cannot check the settings of what it brings.
                let without = |problem: &String| problem.contains("needs a program with the feature");
                problems.extend(run(&check).filter(|problem| !without(problem)));
            }
            found.extend(problems.iter().map(|problem| format!("{}: {line}: {problem}", file.display())));
        }
    }
    assert!(count > 100 && checked > 30, "{count} commands, {checked} with a config");
    assert_eq!(found, Vec::<String>::new());
}

/// The guide leaves out the imports and `main`.
#[test]
fn the_guide_shows_the_rust_environment_of_the_examples() {
    let example = fs::read_to_string(root().join("examples/custom_environment.rs")).unwrap();
    assert!(example.lines().count() <= 80);
    let from = example.find("#[derive(Default)]").unwrap();
    let to = example.find("#[allow(clippy::print_stdout").unwrap();
    let page = fs::read_to_string(root().join("docs/own/world.md")).unwrap();
    assert!(page.contains(example[from..to].trim_end()), "copy the example into docs/own/world.md");
}
