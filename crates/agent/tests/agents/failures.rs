//! Tests of agents that crash, hang or are killed, clients that repeat requests, and invalid keys.

use std::path::Path;
use std::time::{Duration, Instant};

use turnwise_agent::world::AgentConfig;

use super::{asked, begin, has_python, open, say};

/// Waits for a file that a program writes.
fn read(path: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ if Instant::now() > until => panic!("{} was not written", path.display()),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn an_agent_that_fails_ends_its_own_episode_as_error_or_with_a_reward() {
    if !has_python() {
        return;
    }
    for (end, expected) in [
        ("raise ValueError('no idea')", "ValueError: no idea"),
        ("os.kill(os.getpid(), 9)", "signal: 9"),
        ("time.sleep(60)", "env.timeout_s"),
        ("print('all done')", "ended without a reward"),
        ("print(json.dumps({'error': 'lost'}))", "lost"),
        ("print(json.dumps({'reward': 1, 'call': 'x'}))", "`x`"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = format!("reply([user('a')])\n{end}");
        let config = AgentConfig { timeout_s: 5.0, ..AgentConfig::default() };
        let set = open(folder.path(), &program, config.clone());
        let (mut environment, _) = begin(&set).unwrap();
        let error = say(&mut *environment, "b").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        // Its episode is over, and the next one is played.
        assert!(say(&mut *environment, "b").is_err());
        assert_eq!(begin(&set).unwrap().1.text(), "a");
        drop(environment);
        if end.starts_with("time") {
            continue;
        }
        let set = open(folder.path(), &program, AgentConfig { failure_reward: Some(-1.0), ..config });
        let (mut environment, _) = begin(&set).unwrap();
        let step = say(&mut *environment, "b").unwrap();
        assert!(step.terminated && !step.success && step.observation.text().contains(expected), "{step:?}");
        assert_eq!((step.rewards[0].reward, step.metrics[0].name.as_str()), (-1.0, "agent_failed"));
    }
}

#[test]
fn an_agent_that_never_asks_is_an_error_of_its_start() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (program, start_timeout_s, expected) in [
        ("sys.exit('no key')", 60.0, "no key"),
        ("time.sleep(60)", 1.0, "env.start_timeout_s"),
        ("1/0", 60.0, "ZeroDivisionError"),
    ] {
        let set = open(folder.path(), program, AgentConfig { start_timeout_s, ..AgentConfig::default() });
        let error = begin(&set).err().expect("no request").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_an_agent_started_ends_with_its_episode() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("child");
    let program = format!(
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'], start_new_session=True)\n\
         open({:?}, 'w').write('%d\\n' % child.pid)\nreply([user('a')])",
        path.display().to_string()
    );
    let set = open(folder.path(), &program, AgentConfig::default());
    let (mut environment, _) = begin(&set).unwrap();
    let child = Path::new("/proc").join(read(&path)).join("stat");
    let runs = || std::fs::read_to_string(&child).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    environment.close();
    let until = Instant::now() + Duration::from_secs(5);
    while runs() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!runs());
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_no_turn() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = r#"
found = []
def work(**headers):
    answer = ask([user("a")], **headers)
    found.append((answer["id"], answer["choices"][0]["message"]["content"]))
# The first is under way while a client repeats it, as OpenAI's do.
threads = [threading.Thread(target=work, kwargs={"x_stainless_retry_count": str(n)}) for n in range(3)]
for thread in threads:
    thread.start()
    time.sleep(0.3)
[thread.join() for thread in threads]
work()
work(x_stainless_retry_count="0")
print(json.dumps({"reward": float(len(set(found[:4])) == 1 and len(found) == 5 and found[4][1] == "again")}))
"#;
    let set = open(folder.path(), program, AgentConfig::default());
    let (mut environment, _) = begin(&set).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    let step = say(&mut *environment, "once").unwrap();
    // The same question is a turn if it is not a retry.
    assert_eq!(asked(&step.observation).messages.len(), 1);
    let step = say(&mut *environment, "again").unwrap();
    assert!(step.terminated && step.success, "{step:?}");
}

#[test]
fn keys_of_no_episode_and_of_ended_ones_are_told_apart() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let program = format!(
        "open({:?}, 'w').write(KEY + '\\n')\nreply([user('a')])\nprint(1)",
        path.display().to_string()
    );
    let set = open(folder.path(), &program, AgentConfig::default());
    let (mut environment, _) = begin(&set).unwrap();
    let status = |key: &str, path: &str, body: &str| {
        let url = format!("{}/{path}", set.base_url());
        let request = ureq::post(&url).header("authorization", &format!("Bearer {key}"));
        match request.header("content-type", "application/json").send(body) {
            Ok(answer) => answer.status().as_u16(),
            Err(ureq::Error::StatusCode(status)) => status,
            Err(error) => panic!("{error}"),
        }
    };
    let key = read(&path);
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2}"#;
    assert_eq!(status(&key, "chat/completions", body), 400);
    assert_eq!(status(&key, "reward", r#"{"reward": 0.5, "success": false}"#), 200);
    assert_eq!(status(&key, "reward", r#"{"rewards": 0.5}"#), 400);
    let step = say(&mut *environment, "b").unwrap();
    // The last line's reward replaces the one that was posted.
    assert_eq!((step.rewards.len(), step.rewards[0].reward, step.success), (1, 1.0, false));
    assert_eq!(status(&key, "chat/completions", &body.replace(", \"n\": 2", "")), 410);
    assert_eq!(status(&key, "reward", r#"{"reward": 0.5}"#), 410);
    assert_eq!(status("another", "chat/completions", body), 401);
}
