use super::tests::{bits, config, engine, params, prompt, random, request};
use super::*;

fn finish(engine: &mut NativeEngine) -> Vec<Completion> {
    let mut done = Vec::new();
    loop {
        let found = engine.poll().unwrap();
        if found.is_empty() {
            return done;
        }
        done.extend(found);
    }
}

#[test]
fn a_common_prompt_is_computed_once() {
    let parameters = random(config(), 9);
    let mut engine = engine(&parameters, 8, 200);
    for session in 0..8 {
        engine.submit(request(session, 0, &prompt(0, 100, 100), params(1.0, 1))).unwrap();
    }
    let mut computed = 0;
    let mut done = 0;
    while done < 8 {
        engine.admit();
        engine.plan().unwrap();
        computed += engine.rows.len();
        engine.step().unwrap();
        done += std::mem::take(&mut engine.done).len();
    }
    assert_eq!(computed, 100 + 7);
    assert_eq!(engine.prompt_tokens(), PromptTokens { computed: 107, saved: 7 * 99 });
}

#[test]
fn prompt_tokens_are_computed_or_saved() {
    let parameters = random(config(), 9);
    let mut engine = engine(&parameters, 4, 200);
    let mut asked = 0;
    for (session, turn, length) in [(0, 0, 60), (1, 0, 70), (0, 1, 80), (2, 0, 40), (3, 0, 90), (4, 0, 50)] {
        engine.submit(request(session, turn, &prompt(session, length, 30), params(1.0, 5))).unwrap();
        asked += length as u64;
        finish(&mut engine);
        let PromptTokens { computed, saved } = engine.prompt_tokens();
        assert_eq!(computed + saved, asked);
    }
    // Session 0's second turn reuses its own 60 tokens, all others the 30 shared ones.
    assert_eq!(engine.prompt_tokens().saved, 60 + 4 * 30);
}

#[test]
fn a_session_that_ended_leaves_its_prefix() {
    let parameters = random(config(), 9);
    for slots in [1, 3] {
        let mut engine = engine(&parameters, slots, 200);
        let mut saved = Vec::new();
        for session in 0..3 {
            let asked = request(session, 0, &prompt(session, 80, 50), params(1.0, 6));
            engine.submit(asked.clone()).unwrap();
            let found = finish(&mut engine);
            engine.end_session(session);
            assert!(engine.slots.iter().all(|slot| slot.session.is_none()));
            let mut alone = self::engine(&parameters, 1, 200);
            alone.submit(asked).unwrap();
            assert_eq!(bits(&found[0]), bits(&finish(&mut alone)[0]), "the bits of a fresh engine");
            assert_eq!(alone.prompt_tokens(), PromptTokens { computed: 80, saved: 0 });
            saved.push(engine.prompt_tokens().saved);
        }
        assert_eq!(saved, [0, 50, 100], "{slots} slots");
        engine.submit(request(9, 0, &prompt(9, 80, 0), params(1.0, 6))).unwrap();
        finish(&mut engine);
        assert_eq!(engine.prompt_tokens().saved, 100);
    }
}

#[test]
fn what_an_ended_session_left_goes_before_what_another_may_come_back_to() {
    let parameters = random(config(), 9);
    let mut engine = engine(&parameters, 2, 200);
    for session in [0, 1] {
        engine.submit(request(session, 0, &prompt(session, 80, 0), params(1.0, 6))).unwrap();
        finish(&mut engine);
    }
    engine.end_session(1);
    engine.submit(request(2, 0, &prompt(2, 80, 0), params(1.0, 6))).unwrap();
    finish(&mut engine);
    assert_eq!(engine.prompt_tokens().saved, 0);
    // Session 0, idle for longer, is still cached.
    engine.submit(request(0, 1, &prompt(0, 90, 0), params(1.0, 6))).unwrap();
    finish(&mut engine);
    assert_eq!(engine.prompt_tokens().saved, 80);
}
