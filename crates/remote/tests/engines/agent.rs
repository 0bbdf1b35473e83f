//! Tests of an agent whose requests are answered by servers. The agent knows only the run's
//! endpoint.

use std::path::Path;

use turnwise_agent::with_agents;
use turnwise_env::registry::Registry;
use turnwise_train::config::{Config, ConfigSource, Registries, load};

use crate::double::Double;
use crate::model::write_model;
use crate::runs::{KINDS, finish, largest_distance};

/// Two calls of one conversation and one of another; every other reply pays, by the sum of its bytes.
const AGENT: &str = r#"
import json, sys, urllib.request
for line in sys.stdin:
    episode = json.loads(line)
    def ask(messages):
        body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 5}).encode()
        headers = {"content-type": "application/json", "authorization": "Bearer " + episode["api_key"]}
        request = urllib.request.Request(episode["base_url"] + "/chat/completions", body, headers)
        return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages = [{"role": "user", "content": "say " + episode["task"]["id"]}]
    messages.append(ask(messages))
    messages.append({"role": "user", "content": "again"})
    last = ask(messages)
    other = ask([{"role": "system", "content": "judge"}, {"role": "user", "content": last["content"]}])
    even = [sum(reply["content"].encode()) % 2 == 0 for reply in (messages[1], last, other)]
    print(json.dumps({"reward": sum(even)}), flush=True)
"#;

fn config(kind: &str, server: &Double, folder: &Path) -> Config {
    let (kind, route) = if kind == "completions" { ("vllm", "completions") } else { (kind, "generate") };
    let paths = ["model", "agent.py", "train.jsonl", "test.jsonl", "adapters"].map(|name| folder.join(name));
    write_model(&paths[0], 0.3);
    std::fs::write(&paths[1], AGENT).unwrap();
    let line = |id: &str| format!("{{\"id\": \"{id}\", \"goal\": \"say {id}\"}}\n");
    std::fs::write(&paths[2], line("one") + &line("two")).unwrap();
    std::fs::write(&paths[3], line("three")).unwrap();
    let [model, program, train, test, adapters] = paths.each_ref().map(|path| path.display());
    let settings = format!(
        "env.kind=agent env.reuse=true env.max_turns=4 env.command=[\"python3\",\"{program}\"] \
         env.tasks={{train=\"{train}\",test=\"{test}\"}} prompt.template=agent prompt.layout=concatenated \
         policy.model=\"{model}\" policy.lora={{rank=2,alpha=8.0}} sft.steps=0 rollout.tasks_per_step=2 \
         rollout.group_size=2 rollout.temperature=0.8 rollout.max_response_tokens=8 rollout.max_model_len=512 \
         rollout.engine.kind={kind} rollout.engine.route={route} rollout.engine.urls=[{:?}] \
         rollout.engine.adapter_dir=\"{adapters}\" rollout.engine.timeout_s=2 rollout.engine.give_up_s=60 train.steps=3 \
         train.learning_rate=1e-2 train.warmup=0 train.num_minibatches=1 train.skip_zero_advantage=false \
         train.checkpoint_every=1 train.keep_last=0 objective.entropy_coef=0.01 eval.every=0 eval.splits=[\"test\"]",
        server.url()
    );
    let overrides = settings.split_whitespace().map(str::to_owned).collect();
    let source = ConfigSource { overrides, ..ConfigSource::default() };
    let registries = Registries { environments: with_agents(Registry::builtin()), ..Registries::builtin() };
    load(&ConfigSource { registries, ..source }).unwrap()
}

#[test]
fn an_agent_is_answered_by_servers_with_the_weights_of_each_step() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: python3 is not in PATH");
        return;
    }
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let server = Double::start();
        let finished = finish(config(kind, &server, folder.path()), &root);
        assert!(server.loads().len() >= 3, "{kind}: the adapter of each step is loaded");
        for step in 0..3 {
            let distance = largest_distance(&finished, &root, step, 0.8);
            assert!(distance < 1e-4, "{kind}, step {step}: {distance}");
        }
        // Can fail: the weights before the updates give others.
        let moved = finished.sum("loss/grad_norm") > 0.0 && finished.sum("train/updates") >= 3.0;
        assert!(moved, "{kind}: nothing was trained");
        // Each call is a turn, with the prompt that the server got and the tokens that it returned.
        let served = server.served();
        for trajectory in &finished.trajectories {
            let shape: Vec<Vec<usize>> = trajectory
                .sequences
                .iter()
                .map(|sequence| sequence.spans.iter().map(|span| span.turn).collect())
                .collect();
            assert_eq!(shape, [vec![0, 1], vec![2]], "{kind}");
            for sequence in &trajectory.sequences {
                for span in &sequence.spans {
                    let (before, response) =
                        (&sequence.tokens[..span.start], &sequence.tokens[span.start..span.end]);
                    assert!(!response.is_empty() && response.len() <= 5, "the agent's max_tokens");
                    let same = |request: &serde_json::Value| {
                        ["token_ids", "prompt", "input_ids"].iter().any(|key| {
                            request[key].as_array().is_some_and(|ids| {
                                ids.iter().map(|id| id.as_u64().unwrap() as u32).eq(before.iter().copied())
                            })
                        })
                    };
                    assert!(
                        served.iter().any(|served| served.tokens == response && same(&served.request)),
                        "{kind}"
                    );
                }
            }
        }
    }
}
