//! Runs a command on the host, with limits on its time and on the size of its output.

use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Exit code; `None` if the command was killed.
    pub(super) code: Option<i32>,
    pub(super) output: Vec<u8>,
    pub(super) late: bool,
    pub(super) cut: bool,
}

pub(super) fn run(line: &[String], input: &[u8], wall: Duration, most: usize) -> io::Result<Ended> {
    let (program, arguments) =
        line.split_first().ok_or_else(|| io::Error::other("the command line is empty"))?;
    let (mut reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Its copies of the pipe would keep the output open.
    drop(command);
    let stdin = child.stdin.take();
    let input = input.to_vec();
    thread::spawn(move || {
        // A command that does not read its input closes the pipe.
        let _ = stdin.map(|mut stdin| stdin.write_all(&input));
    });
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut output = Vec::new();
        // Keep what was read before an error.
        let _ = reader.by_ref().take(most as u64 + 1).read_to_end(&mut output);
        let _ = send.send(output);
    });
    let begun = Instant::now();
    let mut read: Option<Vec<u8>> = None;
    let (mut late, mut cut) = (false, false);
    let code = loop {
        if read.is_none()
            && let Ok(output) = receive.try_recv()
        {
            cut = output.len() > most;
            read = Some(output);
        }
        if let Some(status) = child.try_wait()? {
            break status.code();
        }
        late = begun.elapsed() >= wall;
        if late || cut {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(LOOK);
    };
    // A leftover process may hold the pipe open.
    let wait = Duration::from_secs(2);
    let mut output = read.or_else(|| receive.recv_timeout(wait).ok()).unwrap_or_default();
    cut = cut || output.len() > most;
    output.truncate(most);
    Ok(Ended { code, output, late, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, wall: Duration, most: usize) -> Ended {
        let line = ["sh", "-c", script].map(str::to_owned);
        run(&line, b"given\n", wall, most).unwrap()
    }

    #[test]
    fn limits_end_commands() {
        let wall = Duration::from_secs(30);
        let ended = shell("cat; echo x >&2; exit 3", wall, 100);
        assert_eq!(ended, Ended { code: Some(3), output: b"given\nx\n".to_vec(), late: false, cut: false });
        let ended = shell("exec yes", wall, 1000);
        assert!(ended.cut && ended.code != Some(0) && ended.output.len() == 1000);
        let begun = Instant::now();
        let ended = shell("exec sleep 60", Duration::from_millis(200), 1000);
        assert!(ended.late && ended.code.is_none() && begun.elapsed() < Duration::from_secs(30));
        assert!(run(&["/no/such/program".to_owned()], b"", wall, 10).is_err());
        assert!(run(&[], b"", wall, 10).is_err());
    }
}
