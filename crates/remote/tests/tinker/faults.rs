//! Tests of faults of the connection and the service: nothing is lost or counts twice, and
//! permanent faults are reported.

use std::time::{Duration, Instant};

use turnwise_core::{LearnError, TokenBatch};
use turnwise_model::testing::relative_distance;
use turnwise_remote::tinker::{AdamParams, Client, ClientOptions, Dialect, Timing};
use turnwise_train::Registries;
use turnwise_train::learners::policy::PolicyLearner;

use crate::double::{Fault, Traits};
use crate::setting::{Setting, TIMING, objective_batch};

/// Faults of one kind that an update must survive, by the path they befall.
const PASSING: [(&str, &[Fault]); 9] = [
    ("retrieve_future", &[Fault::Status(408), Fault::Status(408), Fault::Status(500)]),
    ("retrieve_future", &[Fault::Status(429), Fault::Status(503), Fault::Drop, Fault::DropAfter]),
    ("retrieve_future", &[Fault::Stall(Duration::from_millis(500))]),
    // Hosted services refuse polls that would have been answered.
    ("retrieve_future", &[Fault::Status(400), Fault::Status(400), Fault::Status(400)]),
    // The result is gone: the request is sent anew, and is the same one.
    ("retrieve_future", &[Fault::Status(410)]),
    ("forward_backward", &[Fault::Status(429), Fault::Drop]),
    ("forward_backward", &[Fault::DropAfter, Fault::StatusAfter(500)]),
    ("optim_step", &[Fault::DropAfter, Fault::StatusAfter(502), Fault::Status(408)]),
    ("save_weights", &[Fault::DropAfter]),
];

/// One update and its adapter.
fn updated(setting: &Setting, policy: &mut dyn PolicyLearner, name: &str) -> Vec<f32> {
    let config = setting.config(None, &["objective.kl.coef=0.05"]).unwrap();
    let tokens = setting.sequences();
    let start = policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap();
    let minibatch = Registries::builtin()
        .loss(&config)
        .unwrap()
        .for_minibatch(objective_batch(&tokens, &start), &[])
        .unwrap();
    policy.forward_backward(&TokenBatch::of(&tokens), &minibatch).unwrap();
    policy.step(3e-2).unwrap();
    setting.adapter(policy, name).data
}

#[test]
fn passing_faults_change_no_number() {
    let setting = Setting::new(Traits::JAX);
    let config = setting.config(None, &["seed=3"]).unwrap();
    let expected = updated(&setting, setting.policy(&config).unwrap().as_mut(), "expected");
    for (index, (path, faults)) in PASSING.into_iter().enumerate() {
        let mut policy = setting.policy(&config).unwrap();
        setting.double.fail(path, faults);
        let found = updated(&setting, policy.as_mut(), &format!("found-{index}"));
        assert!(setting.double.lock().faults.is_empty(), "all of {path} {faults:?} came");
        let distance = relative_distance(&found, &expected);
        assert!(distance == 0.0, "{path} {faults:?}: {distance}");
    }
}

#[test]
fn a_json_service_is_not_asked_twice_for_what_would_count_twice() {
    let setting = Setting::new(Traits::JSON);
    let config = setting.config(None, &["objective.kl.coef=0.05"]).unwrap();
    let tokens = setting.sequences();
    for (path, expected) in [("forward_backward", 5), ("optim_step", 5)] {
        let mut policy = setting.policy(&config).unwrap();
        let before = setting.double.count(path);
        let start = policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap();
        let minibatch = Registries::builtin()
            .loss(&config)
            .unwrap()
            .for_minibatch(objective_batch(&tokens, &start), &[])
            .unwrap();
        policy.forward_backward(&TokenBatch::of(&tokens), &minibatch).unwrap();
        setting.double.fail(path, &[Fault::DropAfter]);
        let error = policy.step(3e-2).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains("not known") && error.contains("--resume"), "{error}");
        assert_eq!(setting.double.count(path), before + 1, "{expected}");
        // Nor when its result was dropped: it may have counted.
        let mut policy = setting.policy(&config).unwrap();
        let before = setting.double.count(path);
        let minibatch = Registries::builtin()
            .loss(&config)
            .unwrap()
            .for_minibatch(objective_batch(&tokens, &start), &[])
            .unwrap();
        policy.forward_backward(&TokenBatch::of(&tokens), &minibatch).unwrap();
        setting.double.fail("retrieve_future", &[Fault::Status(410)]);
        let error = policy.step(3e-2).unwrap_err().to_string();
        assert!(error.contains("not known") && error.contains("dropped the result"), "{error}");
        assert!(setting.double.count(path) <= before + 1, "{path}");
    }
    // A pass without a gradient may be repeated.
    let mut policy = setting.policy(&config).unwrap();
    setting.double.fail("forward", &[Fault::DropAfter, Fault::Status(500)]);
    assert_eq!(policy.logprobs(&TokenBatch::of(&tokens).sequences).unwrap().len(), tokens.len());
}

fn options(setting: &Setting, timeout: Duration) -> ClientOptions {
    let timing = Timing { timeout, ..TIMING };
    ClientOptions { url: setting.double.url.clone(), api_key_env: String::new(), timing }
}

#[test]
fn dialects_are_found_by_a_probe() {
    for (traits, dialect) in [(Traits::SUM, Dialect::Protobuf), (Traits::JSON, Dialect::Json)] {
        let setting = Setting::new(traits);
        let client = Client::connect(&options(&setting, TIMING.timeout)).unwrap();
        assert_eq!((client.dialect(), client.models()), (dialect, &["tiny".to_owned()][..]));
    }
}

#[test]
fn a_failed_request_is_refused_in_the_services_words() {
    let setting = Setting::new(Traits::SUM);
    let client = Client::connect(&options(&setting, TIMING.timeout)).unwrap();
    let model = client.create_model("tiny", 3, 1).unwrap();
    client.save_weights(&model).unwrap();
    // Weights are loaded into new models only.
    let error = client.load_weights(&model, "tinker://model_1/weights/none", true).unwrap_err().to_string();
    assert!(error.contains("Checkpoint not found") && error.contains("404"), "{error}");
    let adam = AdamParams { learning_rate: 1.0, ..AdamParams::still() };
    let error = client.optim_step(&model, &adam).unwrap_err().to_string();
    assert!(error.contains("AdamW's settings") && error.contains("422"), "{error}");
    assert!(!error.contains("127.0.0.1"), "no address: {error}");
}

#[test]
fn a_reused_number_is_refused() {
    let setting = Setting::new(Traits::SUM);
    let client = Client::connect(&options(&setting, TIMING.timeout)).unwrap();
    let model = client.create_model("tiny", 3, 1).unwrap();
    client.optim_step(&model, &AdamParams::still()).unwrap();
    // Another client of the same model: its count begins anew.
    setting
        .double
        .lock()
        .models
        .get_mut(model.id())
        .unwrap()
        .numbered
        .insert(2, (b"other".to_vec(), "1".into()));
    let error = client.optim_step(&model, &AdamParams::still()).unwrap_err().to_string();
    assert!(error.contains("409") && error.contains("sequence number was reused"), "{error}");
}

#[test]
fn an_expired_session_names_the_way_on() {
    let setting = Setting::new(Traits::SUM);
    let config = setting.config(None, &[]).unwrap();
    let mut policy = setting.policy(&config).unwrap();
    let beats = setting.double.count("session_heartbeat");
    std::thread::sleep(Duration::from_millis(200));
    assert!(setting.double.count("session_heartbeat") > beats, "it beats by itself");
    {
        let mut service = setting.double.lock();
        service.session_gone = true;
        service.models.clear();
    }
    let error = policy.logprobs(&TokenBatch::of(&setting.sequences()).sequences).unwrap_err();
    // It says nothing about the run's numbers, which a divergence would.
    assert!(matches!(error, LearnError::Unavailable(_)));
    let error = error.to_string();
    assert!(error.contains("no longer knows this session") && error.contains("--resume"), "{error}");
}

#[test]
fn waiting_has_an_end() {
    let setting = Setting::new(Traits::SUM);
    let client = Client::connect(&options(&setting, Duration::from_secs(1))).unwrap();
    setting.double.fail("retrieve_future", &vec![Fault::Status(408); 100_000]);
    let began = Instant::now();
    let error = client.create_model("tiny", 3, 1).unwrap_err().to_string();
    assert!(error.contains("create_model within 1 s") && error.contains("timeout_s"), "{error}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    // Nobody is there at all.
    let nowhere =
        ClientOptions { url: "http://127.0.0.1:9".into(), ..options(&setting, Duration::from_millis(50)) };
    let error = Client::connect(&nowhere).err().unwrap().to_string();
    assert!(error.contains("create_session") && !error.contains("127.0.0.1"), "{error}");
}

#[test]
fn a_result_that_is_dropped_again_and_again_has_an_end_too() {
    let setting = Setting::new(Traits::SUM);
    let client = Client::connect(&options(&setting, Duration::from_secs(1))).unwrap();
    let model = client.create_model("tiny", 3, 1).unwrap();
    setting.double.fail("retrieve_future", &vec![Fault::Status(410); 100_000]);
    let began = Instant::now();
    let error = client.optim_step(&model, &AdamParams::still()).unwrap_err().to_string();
    assert!(error.contains("optim_step within 1 s") && error.contains("dropped the result"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "submissions and polls share one time");
    assert!(setting.double.count("optim_step") > 1);
}

#[test]
fn the_key_is_sent_and_not_shown() {
    let setting = Setting::new(Traits::SUM);
    let options = options(&setting, TIMING.timeout);
    let fail = |name: &str| {
        let options = ClientOptions { api_key_env: name.into(), ..options.clone() };
        Client::connect(&options).err().unwrap().to_string()
    };
    assert!(fail("TURNWISE_NO_SUCH_KEY").contains("TURNWISE_NO_SUCH_KEY is not set"));
    // A variable that every process has; no other is needed.
    let key = std::env::var("CARGO_PKG_NAME").unwrap();
    let named = ClientOptions { api_key_env: "CARGO_PKG_NAME".into(), ..options };
    let client = Client::connect(&named).unwrap();
    assert!(setting.double.lock().keys.iter().all(|sent| sent.as_deref() == Some(&*key)));
    setting.double.fail("create_model", &[Fault::Status(401)]);
    let error = client.create_model("tiny", 3, 1).unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains(&key), "{error}");
}
