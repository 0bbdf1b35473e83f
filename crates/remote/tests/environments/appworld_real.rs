//! AppWorld's own server, on tasks made by `tools/appworld_tasks.py`.
//!
//! Set `TURNWISE_APPWORLD` to the program `appworld` and `TURNWISE_APPWORLD_ROOT` to the folder that
//! the script wrote. Without them the test skips.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use turnwise_core::{Action, TaskSet as _};
use turnwise_remote::environments::appworld::{AppWorldConfig, AppWorldSet};

use crate::{seed, until_within};

/// A server that ends with the test.
struct AppWorld {
    child: Child,
    url: String,
}

impl AppWorld {
    fn start(program: &Path, root: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .args(["serve", "environment", "--port", &port.to_string()])
            .current_dir(root)
            .env("APPWORLD_ROOT", root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { child, url: format!("http://127.0.0.1:{port}") };
        until_within(Duration::from_mins(2), || {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }
}

impl Drop for AppWorld {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn experts(root: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root.join("expert.jsonl")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let field = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    entries.map(|entry| (field(&entry, "id"), field(&entry, "code"))).collect()
}

#[test]
fn experts_solve_every_task_on_the_real_server_and_doing_nothing_solves_none() {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(program), Some(root)) = (path("TURNWISE_APPWORLD"), path("TURNWISE_APPWORLD_ROOT")) else {
        eprintln!("skipped: TURNWISE_APPWORLD and TURNWISE_APPWORLD_ROOT are not set");
        return;
    };
    let root = root.canonicalize().unwrap();
    let server = AppWorld::start(&program, &root);
    let settings = AppWorldConfig {
        urls: vec![server.url.clone()],
        datasets: root.join("data/datasets"),
        ..AppWorldConfig::default()
    };
    let set = AppWorldSet::open(&settings, &[], 3).unwrap();
    assert_eq!(set.splits(), ["train", "dev", "test_normal", "test_challenge"]);
    let experts = experts(&root);
    let mut environment = set.environment().unwrap();
    let mut played = 0;
    for task in set.splits().iter().flat_map(|split| set.tasks(split).unwrap()) {
        let mut play = |code: &str| {
            let first = environment.reset(&task, seed()).unwrap().into_text();
            assert!(
                first.starts_with("My name is ") && first.ends_with("It is 2023-05-18T12:00:00."),
                "{first}"
            );
            environment.step(&Action::from(code)).unwrap()
        };
        let solved = play(&experts[&task.id]);
        assert!(solved.success && solved.terminated, "{}: {}", task.id, solved.observation.text());
        assert_eq!((solved.reward, solved.progress), (1.0, Some(1.0)));
        let idle = play("apis.supervisor.complete_task()");
        assert!(!idle.success && idle.terminated && idle.reward == 0.0, "{}", task.id);
        assert!(idle.progress.is_some_and(|progress| progress > 0.0 && progress < 1.0), "{idle:?}");
        assert_eq!(task.scenario(), task.id.split('_').next());
        played += 1;
    }
    assert_eq!(played, experts.len());
    // Failed code is an observation, and the episode goes on until its limit of turns.
    let task = &set.tasks("train").unwrap()[0];
    environment.reset(task, seed()).unwrap();
    let failed = environment.step(&Action::from("print(unknown)")).unwrap();
    assert!(failed.observation.text().contains("NameError") && !failed.understood && !failed.terminated);
    let printed = environment
        .step(&Action::from("```python\nprint(apis.supervisor.show_profile()['email'])\n```"))
        .unwrap();
    assert!(printed.observation.text().contains("@example.com") && printed.understood, "{printed:?}");
    let cut = environment.step(&Action::from("print(1)")).unwrap();
    assert!(cut.truncated || cut.terminated, "the third turn is the last");
    environment.close();
}
