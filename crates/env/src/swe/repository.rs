//! Operations on the repository in a container.

use turnwise_core::EnvError;
use turnwise_sandbox::{End, Files};

use super::engine::{Container, Ran};
use crate::coding::{NUL, Place, Repository, check_path, cut, findings, listed, shown};

const SECONDS: u64 = 60;
const MOST_PATCH: usize = 8 << 20;
/// Exit code by which a script reports that the given path is a folder.
const IS_FOLDER: i32 = 21;

/// Git command that accepts a repository owned by another user, runs no hooks, and does not quote
/// file names in its output.
const GIT: &str = "git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.quotePath=false";

/// Activates SWE-bench's conda environment or R2E-Gym's virtual environment.
const ACTIVATE: &str = "\
if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate > /dev/null 2>&1; conda activate testbed; fi
if [ -d .venv/bin ]; then PATH=\"$PWD/.venv/bin:$PATH\"; export PATH; fi
";

#[derive(Debug)]
pub(super) struct Worktree {
    container: Container,
    /// Repository folder, used to shorten absolute paths.
    folder: String,
    commit: String,
    /// Paths that are untracked or hidden in the image; they are excluded from the agent's diff.
    foreign: Vec<String>,
}

/// Result of a tool call: the answer to the agent, or the error message for an invalid call. The
/// outer error is an error of the environment.
type Answer = Result<Result<String, String>, EnvError>;

impl Worktree {
    pub(super) fn new(container: Container, folder: &str, hidden: &[&str]) -> Result<Self, EnvError> {
        let head = container.run(&format!("{GIT} rev-parse HEAD"), &[], b"", SECONDS)?;
        if !head.ok() {
            return Err(EnvError::Other(format!(
                "the world swe: `env.container.repository` ({folder}) is no git repository in the image: {}",
                head.text().trim_end()
            )));
        }
        let script = format!("{GIT} ls-files --others --directory --exclude-standard");
        let others = container.run(&script, &[], b"", SECONDS)?;
        let mut foreign: Vec<String> = others.text().lines().map(str::to_owned).collect();
        foreign.extend(hidden.iter().filter(|path| !path.starts_with('/')).map(|path| (*path).to_owned()));
        let commit = head.text().trim().to_owned();
        Ok(Self { container, folder: folder.to_owned(), commit, foreign })
    }

    pub(super) fn command(&self, command: &str, seconds: u64) -> Result<Ran, EnvError> {
        let script =
            "if command -v bash > /dev/null 2>&1; then exec bash -c \"$1\"; else exec sh -c \"$1\"; fi";
        self.container.run(script, &[&format!("{ACTIVATE}{command}")], b"", seconds)
    }

    /// Returns the path relative to the repository's folder; the folder itself is `.`.
    fn relative(&self, path: &str) -> Result<String, String> {
        let inside = match path.strip_prefix(&self.folder) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!(".{rest}"),
            _ => path.to_owned(),
        };
        let inside = inside.strip_suffix('/').unwrap_or(&inside).trim_start_matches("./");
        if inside != "." {
            check_path(inside)?;
        }
        Ok(inside.to_owned())
    }

    pub(super) fn list(&self, path: &str) -> Result<String, EnvError> {
        let script = format!("{GIT} ls-files --cached --others --exclude-standard -- \"$1\"");
        let ran = self.container.run(&script, &[path], b"", SECONDS)?;
        let text = ran.text();
        let list = listed(text.lines().collect::<Vec<_>>().into_iter());
        Ok(if list.is_empty() { "(no files)".to_owned() } else { list })
    }

    pub(super) fn overview(&self) -> Result<String, EnvError> {
        let ran = self.container.run("ls -p", &[], b"", SECONDS)?;
        Ok(listed(ran.text().lines().collect::<Vec<_>>().into_iter()))
    }

    fn read(&self, path: &str) -> Result<Result<Option<Repository>, String>, EnvError> {
        let script = format!("if [ -d \"$1\" ]; then exit {IS_FOLDER}; fi\nexec cat -- \"./$1\"");
        let ran = self.container.run(&script, &[path], b"", SECONDS)?;
        Ok(match ran.end {
            End::Exited(0) => Ok(Some(Repository::of_files(Files::from([(path.to_owned(), ran.output)])))),
            End::Exited(IS_FOLDER) => Ok(None),
            End::Output => Err(format!("{path} is too large")),
            End::Disk => Err("the new files of the repository are too large; remove some".to_owned()),
            _ => Err(format!("there is no file {path}")),
        })
    }

    pub(super) fn view(&self, path: &str, first: usize, last: Option<usize>) -> Answer {
        let path = match self.relative(path) {
            Ok(path) => path,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(match self.read(&path)? {
            Ok(Some(files)) => files.view(&path, first, last),
            Ok(None) => Ok(self.list(&path)?),
            Err(reason) => Err(reason),
        })
    }

    pub(super) fn search(&self, text: &str) -> Answer {
        if text.is_empty() || text.contains('\0') {
            return Ok(Err("the text to search for is empty or has a NUL byte".to_owned()));
        }
        let script = format!("{GIT} grep -nIF --untracked -e \"$1\"");
        let ran = self.container.run(&script, &[text], b"", SECONDS)?;
        Ok(Ok(findings(ran.text().lines().map(|line| cut(line).to_owned()).collect())))
    }

    pub(super) fn edit(&self, path: &str, place: &Place, new: &str) -> Answer {
        let path = &match self.relative(path) {
            Ok(path) => path,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut files = match self.read(path)? {
            Ok(Some(files)) => files,
            Ok(None) => return Ok(Err(format!("{path} is a folder"))),
            Err(_) if *place == Place::Whole => Repository::default(),
            Err(reason) => return Ok(Err(reason)),
        };
        let answer = match files.edit(path, place, new) {
            Ok(answer) => answer,
            Err(reason) => return Ok(Err(reason)),
        };
        let bytes = files.to_files().remove(path).unwrap_or_default();
        let script = "mkdir -p -- \"$(dirname -- \"./$1\")\" && cat > \"./$1\"";
        let ran = self.container.run(script, &[path], &bytes, SECONDS)?;
        Ok(if ran.ok() {
            Ok(answer)
        } else {
            Err(format!("{path} cannot be written: {}", ran.text().trim_end()))
        })
    }

    pub(super) fn run(&self, command: &str, limits: &super::SweLimits) -> Answer {
        if command.contains('\0') {
            return Ok(Ok(NUL.to_owned()));
        }
        let ran = self.command(command, limits.wall_s)?;
        Ok(Ok(shown(ran.end, &ran.output, &limits.of_command())))
    }

    /// Returns the diff from the image to the current files, without ignored files, or `None` if
    /// git fails or the diff is too large.
    pub(super) fn patch(&self) -> Result<Option<Vec<u8>>, EnvError> {
        // Uses a copy of the index, so the agent's `git diff` and `git status` stay the same.
        let script = format!(
            "commit=$1\nshift\nindex=$({GIT} rev-parse --git-path index 2> /dev/null) || exit\n\
             case $index in /*) ;; *) index=$PWD/$index ;; esac\n\
             export GIT_INDEX_FILE=\"$index.turnwise\"\ncp -- \"$index\" \"$GIT_INDEX_FILE\" 2> /dev/null\n\
             {GIT} add -A -- . \"$@\" > /dev/null 2>&1\n\
             {GIT} diff --cached --binary --no-color --no-ext-diff --no-textconv --no-renames \"$commit\" -- . \"$@\"\n\
             code=$?\nrm -f -- \"$GIT_INDEX_FILE\" 2> /dev/null\nexit $code"
        );
        let excluded =
            self.foreign.iter().map(|path| format!(":(exclude,literal){}", path.trim_end_matches('/')));
        let excluded: Vec<String> = excluded.collect();
        let arguments: Vec<&str> =
            std::iter::once(self.commit.as_str()).chain(excluded.iter().map(String::as_str)).collect();
        let ran = self.container.run(&script, &arguments, b"", SECONDS)?;
        Ok((ran.ok() && ran.output.len() <= MOST_PATCH).then_some(ran.output))
    }

    pub(super) fn apply(&self, patch: &[u8]) -> Result<bool, EnvError> {
        if patch.is_empty() {
            return Ok(true);
        }
        let script = format!("exec {GIT} apply --whitespace=nowarn -");
        Ok(self.container.run(&script, &[], patch, SECONDS)?.ok())
    }

    /// Resets the files `known` to their content in a commit, and deletes the files `new`, which
    /// the commit does not contain.
    pub(super) fn reset(&self, commit: &str, known: &[&str], new: &[&str]) -> Result<bool, EnvError> {
        if !new.is_empty() && !self.container.run("rm -f -- \"$@\"", new, b"", SECONDS)?.ok() {
            return Ok(false);
        }
        if known.is_empty() {
            return Ok(true);
        }
        let script = format!("commit=$1\nshift\nexec {GIT} checkout -q \"$commit\" -- \"$@\"");
        let arguments: Vec<&str> = std::iter::once(commit).chain(known.iter().copied()).collect();
        Ok(self.container.run(&script, &arguments, b"", SECONDS)?.ok())
    }
}
