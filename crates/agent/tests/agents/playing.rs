//! Tests of episodes that end normally.

use turnwise_agent::world::{AgentConfig, RewardRule};
use turnwise_core::{MessageCall, Part};

use super::{asked, begin, has_python, open, reply, say};

#[test]
fn each_request_is_a_turn_and_goes_on_from_the_reply_that_it_repeats() {
    if !has_python() {
        return;
    }
    let program = r#"
tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
messages = [{"role": "system", "content": "s"}, user("q%d" % TASK["number"])]
for _ in range(2):
    message = reply(messages, tools=tools, max_completion_tokens=5, stop=["END"])
    messages.append(message)
    for call in message.get("tool_calls", []):
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": call["function"]["arguments"]})
print("done with", messages[-1]["content"])
print(json.dumps({"reward": 0.5, "success": True, "metrics": {"asked": 2}}))
"#;
    let folder = tempfile::tempdir().unwrap();
    let set = open(folder.path(), program, AgentConfig::default());
    let (mut environment, seen) = begin(&set).unwrap();
    assert_eq!(seen.text(), "s\nq7");
    assert_eq!(seen.parts[0], Part::Message { role: "system".into(), text: "s".into() });
    assert_eq!(seen.state_key.as_deref(), Some("m\nsystem: s\nuser: q7\n"));
    let first = asked(&seen);
    assert_eq!((first.continues, first.max_tokens, first.agent.as_str()), (None, Some(5), "m"));
    assert_eq!(
        (first.stop.as_slice(), environment.tools()[0].name()),
        (["END".to_owned()].as_slice(), "add")
    );
    let call = MessageCall { id: "call_0_0".into(), name: "add".into(), arguments: "{\"n\":1}".into() };
    let step = environment.step(&reply("", vec![call])).unwrap();
    let result = Part::ToolResult { call_id: "call_0_0".into(), text: "{\"n\":1}".into() };
    assert_eq!(step.observation.parts, [result]);
    let continued = asked(&step.observation).continues.unwrap();
    assert_eq!((continued.turn, continued.messages), (0, 3));
    let step = say(&mut *environment, "three").unwrap();
    assert!(step.terminated && step.success);
    let given = &step.rewards[0];
    assert_eq!((given.turn, given.reward, given.rule.as_str()), (1, 0.5, "episode, last line"));
    assert_eq!((step.metrics[0].name.as_str(), step.metrics[0].value), ("asked", 2.0));
}

#[test]
fn sub_agents_ask_at_once_and_each_gets_its_reward() {
    if !has_python() {
        return;
    }
    let program = r#"
def work(name):
    answer = ask([user(name)], model="policy", x_turnwise_agent=name)
    post("/reward", {"reward": 1.0 if answer["choices"][0]["message"]["content"] == name else -1.0, "agent": name})
    ids[name] = answer["id"]
ids = {}
threads = [threading.Thread(target=work, args=(name,)) for name in ["one", "two"]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
post("/reward", {"reward": 0.25, "call": ids["one"]})
sys.exit(int(post("/reward", {"reward": 1, "call": "nothing"})["status"] != 400))
"#;
    let folder = tempfile::tempdir().unwrap();
    let set =
        open(folder.path(), program, AgentConfig { reward: RewardRule::ExitCode, ..AgentConfig::default() });
    let (mut environment, seen) = begin(&set).unwrap();
    let first = asked(&seen).agent.clone();
    let step = say(&mut *environment, &first).unwrap();
    let second = asked(&step.observation).agent.clone();
    assert_ne!(first, second);
    let step = say(&mut *environment, "no name").unwrap();
    let mut given: Vec<(usize, f64, String)> =
        step.rewards.into_iter().map(|given| (given.turn, given.reward, given.rule)).collect();
    given.sort_by(|a, b| a.2.cmp(&b.2));
    let call = usize::from(first != "one");
    let mut expected = vec![
        (0, 1.0, format!("agent {first}, posted")),
        (1, -1.0, format!("agent {second}, posted")),
        (call, 0.25, "call, posted".to_owned()),
        (1, 1.0, "episode, exit code 0".to_owned()),
    ];
    expected.sort_by(|a, b| a.2.cmp(&b.2));
    assert_eq!(given, expected);
    assert!(step.terminated && step.success);
}

#[test]
fn a_program_plays_one_episode_after_the_other() {
    if !has_python() {
        return;
    }
    let program = r#"
print("ready")
for line in sys.stdin:
    KEY = json.loads(line)["api_key"]
    reply([user("pid %d" % os.getpid())])
    print(json.dumps({"reward": 1}), flush=True)
"#;
    let folder = tempfile::tempdir().unwrap();
    let set = open(folder.path(), program, AgentConfig { reuse: true, ..AgentConfig::default() });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (mut environment, first) = begin(&set).unwrap();
        seen.push(first.text().into_owned());
        let step = say(&mut *environment, "x").unwrap();
        assert!(step.terminated && step.success, "{step:?}");
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn the_request_after_the_last_turn_cuts_the_episode_off() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program =
        "post('/reward', {'reward': 2})\nwhile True: reply([user('again')], x_stainless_retry_count='0')";
    let set = open(folder.path(), program, AgentConfig::default());
    let (mut environment, _) = begin(&set).unwrap();
    for _ in 0..3 {
        assert!(!say(&mut *environment, "x").unwrap().truncated);
    }
    let step = say(&mut *environment, "x").unwrap();
    assert!(step.truncated && !step.terminated);
    assert_eq!((step.rewards[0].turn, step.rewards[0].reward), (3, 2.0));
}
