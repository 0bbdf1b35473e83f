//! A process group that is killed as a whole.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};

use super::strays;
use super::watchdog::Watchdog;

/// A child process that leads its own process group.
///
/// When the leader exits, the group is killed before the leader is reaped, because afterwards
/// another group could get the group's id. On Linux, descendants that left the group are killed
/// too.
#[derive(Debug)]
pub struct Group {
    leader: Child,
    mark: String,
    watchdog: Option<Watchdog>,
    ended: bool,
    status: Option<ExitStatus>,
}

impl Group {
    /// Starts a process in its own group, out of reach of the terminal's Ctrl-C.
    ///
    /// # Errors
    /// Fails if the program cannot start.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let mark = strays::new_mark();
        let leader = command.env(strays::VARIABLE, &mark).spawn()?;
        let watchdog = Watchdog::start(leader.id(), &mark);
        Ok(Self { leader, mark, watchdog, ended: false, status: None })
    }

    /// Takes the leader's standard streams; a second call returns `None` for each.
    pub fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.leader.stdin.take(), self.leader.stdout.take(), self.leader.stderr.take())
    }

    /// Kills the rest of the group if the leader has exited, and returns whether it has.
    pub fn has_ended(&mut self) -> bool {
        if !self.ended {
            match has_exited(&mut self.leader) {
                Ok(false) => {}
                Ok(true) => {
                    kill_group(&self.leader);
                    self.reap();
                }
                // No longer a child (`SIGCHLD` is ignored), so its id may be reused.
                Err(_) => self.forget(),
            }
        }
        self.ended
    }

    /// Returns the leader's exit status, if known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Kills the leader and all its descendants.
    pub fn kill(&mut self) {
        if !self.has_ended() {
            kill_group(&self.leader);
            // Fails only if it has just exited.
            let _ = self.leader.kill();
            self.reap();
        }
    }

    fn reap(&mut self) {
        // Before reaping, while the group id is still valid.
        self.watchdog = None;
        self.status = self.leader.wait().ok();
        self.forget();
    }

    fn forget(&mut self) {
        self.watchdog = None;
        strays::kill(&self.mark);
        self.ended = true;
    }
}

#[cfg(unix)]
fn has_exited(child: &mut Child) -> io::Result<bool> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    let Some(number) = number(child) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(number), options)?.is_some())
}

#[cfg(not(unix))]
fn has_exited(child: &mut Child) -> io::Result<bool> {
    Ok(child.try_wait()?.is_some())
}

#[cfg(unix)]
fn kill_group(leader: &Child) {
    if let Some(group) = number(leader) {
        // Fails only if the group is empty.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_: &Child) {}

#[cfg(unix)]
fn number(child: &Child) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(child.id().cast_signed())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read as _;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    fn ends(pid: &str) -> bool {
        let path = std::path::Path::new("/proc").join(pid.trim()).join("stat");
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            if std::fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z ")) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_outlives_its_leader_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("child");
        let script = format!("sleep 60 & echo $! > {}; exit 3", path.display());
        let mut group = Group::spawn(Command::new("sh").args(["-c", &script])).unwrap();
        assert_eq!(group.status(), None);
        let until = Instant::now() + Duration::from_secs(5);
        while !group.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(group.status().and_then(|status| status.code()), Some(3));
        assert!(ends(&std::fs::read_to_string(&path).unwrap()));
        group.kill();
        assert!(group.has_ended() && group.status().is_some());
    }

    /// One descendant has its own session; another's parent has exited.
    #[test]
    fn what_has_left_the_group_is_killed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("children");
        let script = format!(
            "setsid sleep 60 & echo $! >> {path}; (setsid sh -c 'sleep 60 & echo $! >> {path}')",
            path = path.display()
        );
        let children = || {
            let text = std::fs::read_to_string(&path).unwrap();
            let children: Vec<String> = text.lines().map(str::to_owned).collect();
            assert_eq!(children.len(), 2);
            children
        };
        let mut group = Group::spawn(Command::new("sh").args(["-c", &script])).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while !group.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(group.status().and_then(|status| status.code()), Some(0));
        assert!(children().iter().all(|child| ends(child)));
        std::fs::remove_file(&path).unwrap();
        let mut group = Group::spawn(
            Command::new("sh").args(["-c", &format!("{script}; echo; sleep 60")]).stdout(Stdio::piped()),
        )
        .unwrap();
        let mut ready = [0];
        group.take_pipes().1.unwrap().read_exact(&mut ready).unwrap();
        group.kill();
        assert!(children().iter().all(|child| ends(child)));
    }

    #[test]
    fn a_leader_that_goes_on_is_killed_when_it_is_to_be() {
        let mut group = Group::spawn(Command::new("sleep").arg("60")).unwrap();
        assert!(!group.has_ended());
        group.kill();
        assert!(group.has_ended() && group.status().is_some_and(|status| status.code().is_none()));
    }
}
