//! Tests of servers and configs that are rejected before any long work.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_train::Run;
use turnwise_train::config::{ConfigSource, load};

use crate::double::Double;
use crate::runs::{FILE, Notes, TINY, config, start};

#[test]
fn servers_that_would_spoil_a_run_are_refused_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |kind: &str, spoil: &dyn Fn(&Double), more: &[&str]| {
        let server = Double::start();
        spoil(&server);
        let root = folder.path().join("run");
        let _ = std::fs::remove_dir_all(&root);
        match start(config(kind, &[&server], folder.path(), more), &root) {
            Ok(_) => panic!("the run started"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.starts_with("rollout.engine.urls[0]: "), "{error}");
                assert!(!error.contains(&server.server.address.port().to_string()), "{error}");
                error
            }
        }
    };
    let on = |switch: &AtomicBool| switch.store(true, Ordering::Relaxed);
    let raw = |server: &Double| on(&server.switches().raw);
    assert!(refused("vllm", &raw, &[]).contains("--logprobs-mode processed_logprobs"));
    assert!(refused("sglang", &raw, &[]).contains("SGLANG_RETURN_ORIGINAL_LOGPROB"));
    assert!(refused("completions", &raw, &[]).contains("--logprobs-mode processed_logprobs"));
    let old = |server: &Double| on(&server.switches().no_token_ids);
    let error = refused("completions", &old, &[]);
    assert!(error.contains("return_token_ids") && error.contains("0.10.2"), "{error}");
    let other = |server: &Double| on(&server.switches().another_model);
    assert!(refused("vllm", &other, &[]).contains("computes another model than the learner"));
    let closed = |server: &Double| on(&server.switches().no_scale_out);
    let error = refused("vllm", &closed, &[]);
    assert!(error.contains("--enable-scale-out") && error.contains("route = \"completions\""), "{error}");
    let bare = |server: &Double| on(&server.switches().no_adapters);
    assert!(refused("vllm", &bare, &[]).contains("VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"));
    let short = |server: &Double| server.switches().context.store(100, Ordering::Relaxed);
    assert!(refused("vllm", &short, &[]).contains("--max-model-len 256"));
    let elsewhere = ["rollout.engine.server_adapter_dir=\"/nowhere\""];
    assert!(refused("vllm", &|_| (), &elsewhere).contains("server_adapter_dir"));
    // A server that is not there is missed before anything is written.
    let root = folder.path().join("gone");
    let config = {
        let server = Double::start();
        config("vllm", &[&server], folder.path(), &[])
    };
    let error = start(config, &root).err().unwrap().to_string();
    assert!(error.contains("is the server up?") && !root.exists(), "{error}");
}

#[test]
fn a_config_that_cannot_use_servers_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |more: &[&str]| {
        let overrides = TINY.iter().chain(more).map(|text| (*text).to_owned());
        let source = ConfigSource {
            files: vec![FILE.into()],
            overrides: overrides.collect(),
            ..ConfigSource::default()
        };
        load(&source).unwrap_err().to_string()
    };
    let engine = format!(
        "rollout.engine={{urls=[\"http://127.0.0.1:9\"], adapter_dir=\"{}\"}}",
        folder.path().display()
    );
    let without = |key: &str| {
        let mut more = vec![engine.as_str()];
        more.push(key);
        refused(&more)
    };
    assert!(without("rollout.engine.urls=[]").contains("rollout.engine.urls"));
    assert!(without("rollout.engine.urls=[\"127.0.0.1:8000\"]").contains("http://"));
    let secret = without("rollout.engine.urls=[\"http://me:secret@host\"]");
    assert!(secret.contains("api_key_env"), "{secret}");
    assert!(without("rollout.engine.adapter_dir=\"\"").contains("share"));
    let route = without("rollout.engine={kind=\"sglang\", route=\"completions\"}");
    assert!(route.contains("rollout.engine.route"), "{route}");
    assert!(without("rollout.top_p=0.9").contains("train.recompute_old_logprobs"));
    let text = std::fs::read_to_string(FILE).unwrap();
    let file = folder.path().join("whole.toml");
    std::fs::write(&file, text).unwrap();
    let whole =
        ConfigSource { files: vec![file], overrides: vec![engine.clone()], ..ConfigSource::default() };
    let error = load(&whole).unwrap_err().to_string();
    assert!(error.contains("policy.lora") && error.contains("weights=full"), "{error}");
    let late = ["rollout.engine.weights=full", "rollout.max_staleness=1"];
    let error = refused(&[&[engine.as_str()], &late[..]].concat());
    assert!(error.contains("rollout.max_staleness") && error.contains("in place"), "{error}");
    // A program without servers refuses before it builds a world.
    let overrides = TINY.iter().map(|text| (*text).to_owned()).chain([engine]);
    let sound =
        ConfigSource { files: vec![FILE.into()], overrides: overrides.collect(), ..ConfigSource::default() };
    let error =
        Run::builder(load(&sound).unwrap()).directory(folder.path().join("run")).start(&mut Notes::default());
    assert!(error.err().unwrap().to_string().contains("cargo build --release --features remote"));
}
