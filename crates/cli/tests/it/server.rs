//! Tests of the server of `turnwise view` under many, slow and idle connections, with little memory
//! and few open files.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A file being served; closed when dropped.
struct Served(Child, String);

impl Served {
    fn start(file: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwise"))
            .args(["view", file, "--address", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self(child, address)
    }

    /// A file of one group of `turns` turns with `letters` letters each.
    fn of(folder: &std::path::Path, turns: usize, letters: usize) -> Self {
        let turn = serde_json::json!({"observation": "x".repeat(letters), "action": "look", "reward": 0.0});
        let line = serde_json::json!({"group": "g", "turns": vec![turn; turns]}).to_string();
        let path = folder.join("trajectories.jsonl");
        std::fs::write(&path, format!("{line}\n{line}\n")).unwrap();
        Self::start(path.to_str().unwrap())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.1).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    fn ask(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.1)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }

    fn is_sound(&self) -> bool {
        self.ask("/").is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200 "))
    }

    fn limit(&self, resource: Resource, most: u64) {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(Pid::from_raw(self.0.id().cast_signed()), resource, limit).unwrap();
    }

    /// A number of `/proc/PID/status`, in kB.
    fn status(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Processor time so far, in hundredths of a second.
    fn processor_time(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn connections_without_a_thread_end_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::of(folder.path(), 2, 10);
    assert!(served.is_sound());
    // Room for a few threads more.
    served.limit(Resource::As, (served.status("VmSize") << 10) + (24 << 20));
    let idle: Vec<TcpStream> = (0..45).map(|_| served.connect()).collect();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(served.0.try_wait().unwrap(), None, "the server ended");
    drop(idle);
    let until = Instant::now() + Duration::from_secs(30);
    while !served.is_sound() {
        assert!(Instant::now() < until, "the server does not answer any more");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn too_many_open_files_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::of(folder.path(), 2, 10);
    assert!(served.is_sound());
    let open = std::fs::read_dir(format!("/proc/{}/fd", served.0.id())).unwrap().count() as u64;
    served.limit(Resource::Nofile, open + 4);
    let idle: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let before = served.processor_time();
    std::thread::sleep(Duration::from_secs(2));
    let used = served.processor_time() - before;
    assert!(used < 10, "{used} hundredths of a second of work in two seconds of waiting");
    drop(idle);
    assert!(served.is_sound());
}

#[test]
fn a_slow_request_has_an_end_and_others_are_answered_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::of(folder.path(), 2, 10);
    let mut slow = served.connect();
    let started = Instant::now();
    // A byte now and then: each comes long before a reader of bytes would give up.
    while slow.write_all(b"G").is_ok() {
        assert!(started.elapsed() < Duration::from_secs(30), "a slow request holds its thread");
        std::thread::sleep(Duration::from_millis(500));
        if started.elapsed().as_secs() == 5 {
            assert!(served.is_sound());
        }
    }
}

#[test]
fn many_large_pages_take_the_memory_of_a_few() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::of(folder.path(), 1500, 2000);
    let path = "/step/0/group/0/open";
    let none = served.status("VmHWM");
    let size = served.ask(path).unwrap().len();
    assert!(size > 5 << 20, "the page has {size} bytes");
    let one = served.status("VmHWM") - none;
    // More clients than the server has connections. None reads its page before the last has sent its request, so a server
    // without a limit of pages would hold one for each connection.
    let mut waiting: Vec<TcpStream> = (0..100).map(|_| served.connect()).collect();
    for stream in &mut waiting {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", served.1).unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    std::thread::scope(|scope| {
        for mut stream in waiting {
            scope.spawn(move || {
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                assert_eq!(answer.len(), size);
            });
        }
    });
    let more = served.status("VmHWM") - none;
    // Eight pages at a time, and half as much again for what the allocator keeps. Without a limit it is 30 pages' memory.
    assert!(more < 12 * one, "{more} kB for many pages and {one} kB for one of {size} bytes");
}
