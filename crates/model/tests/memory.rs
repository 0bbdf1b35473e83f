//! Counts allocations of training: never more than a chunk of logits at once, and as many bytes as
//! the memory plan says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "an allocator that counts can only be written so")]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnwise_core::{
    Learner as _, Objective, ObjectiveError, RequiredPasses, Seed, TokenBatch, TokenGradients, TokenSequence,
    TokenStatistics, TurnSpan,
};
use turnwise_model::vision::{Image, ImageSettings, Pictures, TowerKind, VisionConfig, VisionTokens};
use turnwise_model::{
    Family, LearnerConfig, MemoryPlan, ModelConfig, NativeLearner, Parameters, PicturePlan, PlanPhase,
    PlanSettings,
};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is handed on to the system's allocator as it came; only sizes are noted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count(block.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(block) }
    }

    unsafe fn alloc_zeroed(&self, block: Block) -> *mut u8 {
        count(block.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(block) }
    }

    unsafe fn dealloc(&self, place: *mut u8, block: Block) {
        NOW.fetch_sub(block.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, block) }
    }

    unsafe fn realloc(&self, place: *mut u8, block: Block, size: usize) -> *mut u8 {
        // Counted like a copy: the old block and the new one.
        count(size);
        NOW.fetch_sub(block.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(place, block, size) }
    }
}

fn count(size: usize) {
    let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

/// One measurement at a time, because the counters are global.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the maximum bytes that `work` added at a time.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

const MIB: usize = 1 << 20;

fn model(vocab_size: usize, hidden_size: usize, layers: usize) -> ModelConfig {
    ModelConfig {
        vocab_size,
        hidden_size,
        intermediate_size: 3 * hidden_size,
        num_hidden_layers: layers,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: hidden_size / 4,
        max_position_embeddings: 16_384,
        tie_word_embeddings: true,
        ..ModelConfig::default()
    }
}

fn parameters(config: &ModelConfig) -> Parameters<f32> {
    Parameters::init(config.clone(), Seed::derive(1, turnwise_core::Purpose::Init, &[])).unwrap()
}

/// Returns sequences whose every token except the first is a response.
fn sequences(count: usize, length: usize, vocabulary: usize) -> Vec<TokenSequence> {
    (0..count)
        .map(|index| TokenSequence {
            tokens: (0..length).map(|t| ((t * 7919 + index * 31) % vocabulary) as u32).collect(),
            spans: vec![TurnSpan { turn: 0, start: 1, end: length }],
        })
        .collect()
}

/// Uses every available number, with a derivative for each.
struct Everything {
    divergences: bool,
}

impl Objective for Everything {
    fn passes(&self) -> RequiredPasses {
        RequiredPasses { entropies: true, reference_kls: self.divergences, ..RequiredPasses::default() }
    }

    fn evaluate(&self, _: usize, tokens: TokenStatistics<'_>) -> Result<TokenGradients, ObjectiveError> {
        Ok(TokenGradients {
            loss: tokens.logprobs.iter().map(|&value| f64::from(value)).sum(),
            d_logprobs: vec![1e-3; tokens.logprobs.len()],
            d_entropies: vec![1e-3; tokens.entropies.len()],
            d_reference_kls: vec![1e-3; tokens.reference_kls.len()],
            ..TokenGradients::default()
        })
    }
}

fn settings(config: &ModelConfig, learner: LearnerConfig, longest: usize, divergences: bool) -> PlanSettings {
    PlanSettings {
        learner,
        trainable: turnwise_model::ParameterLayout::new(config).len,
        longest,
        adapter_row: 0,
        adapter_rank: 0,
        reference: if divergences { turnwise_model::ParameterLayout::new(config).len } else { 0 },
        divergences,
        second_gradient: false,
        critic: None,
        sampling: None,
        staleness: 0,
        merged: false,
        pictures: None,
    }
}

/// Runs a training step and returns its maximum bytes, including weights and moments.
fn step(config: &ModelConfig, learner: LearnerConfig, batch: &[TokenSequence], divergences: bool) -> usize {
    peak(|| {
        let mut trained = NativeLearner::new(parameters(config), learner).unwrap();
        if divergences {
            trained.set_reference(Arc::new(parameters(config))).unwrap();
        }
        trained.forward_backward(&TokenBatch::of(batch), &Everything { divergences }).unwrap();
        trained.step(1e-3).unwrap();
    })
}

#[test]
fn a_vocabulary_of_151936_over_8192_tokens_needs_a_chunk_of_logits() {
    let _alone = ALONE.lock().unwrap();
    let config = model(151_936, 8, 1);
    let learner = LearnerConfig { lanes: 1, micro_batch_tokens: 8192, ..LearnerConfig::default() };
    // All logits at once would take 4.6 GiB for log-probs and entropies of the whole sequence.
    let whole = sequences(1, 8193, 50_000);
    let plan = MemoryPlan::new(&config, &settings(&config, learner, 8192, false));
    let mut trained = NativeLearner::new(parameters(&config), learner).unwrap();
    let scored =
        peak(|| assert_eq!(trained.logprobs(&TokenBatch::of(&whole).sequences).unwrap()[0].len(), 8192));
    drop(trained);
    let limit = plan.of(PlanPhase::Training) as usize + 8 * MIB;
    assert!(scored <= limit && limit < 256 * MIB, "{scored} bytes, the plan says {plan:#?}");
    // With backward passes, and with reference divergences; shorter, to be quick.
    for (divergences, length) in [(false, 2049), (true, 1025)] {
        let batch = sequences(1, length, 50_000);
        let logits = (length - 1) * config.vocab_size * size_of::<f32>();
        let plan = MemoryPlan::new(&config, &settings(&config, learner, length - 1, divergences));
        let found = step(&config, learner, &batch, divergences);
        // The plan assumes a micro-batch that fills the budget.
        let limit = plan.peak() as usize + 8 * MIB;
        assert!(found <= limit, "{found} bytes, the plan says {}", plan.peak());
        assert!(limit < logits, "the limit would not notice all logits");
        assert!(plan.item("output layer") < 160 * MIB as u64, "{plan:?}");
        assert!(plan.item("divergences") < 320 * MIB as u64, "{plan:?}");
    }
    let all = peak(|| drop(std::hint::black_box(vec![0.0f32; 8192 * config.vocab_size])));
    assert!(all >= 8192 * config.vocab_size * size_of::<f32>());
}

#[test]
fn a_step_takes_what_the_plan_says() {
    let _alone = ALONE.lock().unwrap();
    let config = model(2048, 128, 6);
    let base = LearnerConfig { lanes: 1, micro_batch_tokens: 1024, ..LearnerConfig::default() };
    let mut found = Vec::new();
    for (learner, divergences) in [
        (base, false),
        (LearnerConfig { recompute: true, ..base }, false),
        (LearnerConfig { lanes: 2, ..base }, false),
        (base, true),
    ] {
        let batch = sequences(8, 513, config.vocab_size);
        let plan = MemoryPlan::new(&config, &settings(&config, learner, 512, divergences));
        let bytes = step(&config, learner, &batch, divergences);
        let ratio = bytes as f64 / plan.peak() as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio} of the plan: {bytes} bytes, {plan:#?}");
        found.push(bytes);
    }
    // The comparison can fail: these differ by far more than the tolerance.
    assert!(found[1] < found[0] * 7 / 10 && found[2] > found[0] * 14 / 10 && found[3] > found[0] * 12 / 10);
}

/// Returns a small decoder with Qwen2.5-VL's tower at width 64.
fn with_tower() -> ModelConfig {
    let vision = VisionConfig {
        kind: TowerKind::Qwen25Vl,
        depth: 4,
        hidden_size: 64,
        intermediate_size: 96,
        num_heads: 2,
        patch_size: 14,
        temporal_patch_size: 2,
        spatial_merge_size: 2,
        window_size: 112,
        fullatt_block_indexes: vec![1, 3],
        initializer_range: 0.02,
        mrope_section: [1, 2, 1],
        tokens: VisionTokens { start: 4, end: 5, image: 6, video: 7 },
        image: ImageSettings { min_pixels: 784, ..ImageSettings::default() },
        pictures: Pictures::default(),
    };
    ModelConfig { model_type: Family::Qwen25Vl, vision: Some(vision), ..model(512, 32, 1) }
}

#[test]
fn pictures_take_what_the_plan_says() {
    let _alone = ALONE.lock().unwrap();
    let config = with_tower();
    let vision = config.vision.as_ref().unwrap();
    let learner = LearnerConfig { lanes: 2, micro_batch_tokens: 256, ..LearnerConfig::default() };
    let shown = |count: usize, side: usize| {
        let sequence = |index: usize| {
            let rgb = (0..side * side * 3).map(|place| ((place * 31 + index * 97) % 251) as u8).collect();
            let image = Image { width: side, height: side, rgb };
            let (ids, held) = vision.pictures.add_held(&image, vision).unwrap();
            let tokens: Vec<u32> = [4].into_iter().chain(ids.ids()).chain([5, 20, 30, 40]).collect();
            let spans = vec![TurnSpan { turn: 0, start: tokens.len() - 3, end: tokens.len() }];
            (TokenSequence { tokens, spans }, held)
        };
        (0..count).map(sequence).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let mut found = Vec::new();
    // Small pictures dealt to lanes, and large ones whose products are split.
    for (count, side) in [(96, 112), (2, 896)] {
        let size = [side, side];
        let pictures = PicturePlan { size, known: count, scored: count, differentiated: count };
        let longest = (side / 28) * (side / 28) + 5;
        let text = settings(&config, learner, longest, false);
        let plan = MemoryPlan::new(&config, &PlanSettings { pictures: Some(pictures), ..text.clone() });
        let bytes = peak(|| {
            let (batch, held) = shown(count, side);
            step(&config, learner, &batch, false);
            drop(held);
        });
        let ratio = bytes as f64 / plan.peak() as f64;
        assert!((0.85..1.1).contains(&ratio), "{ratio} of the plan: {bytes} bytes, {plan:#?}");
        // The comparison can fail: without pictures the plan is much smaller.
        assert!(MemoryPlan::new(&config, &text).peak() < plan.peak() / 3, "{plan:#?}");
        found.push(bytes);
    }
    assert!(found[0] > 64 * MIB && found[1] > 64 * MIB, "{found:?}");
}

#[test]
fn what_training_works_in_is_given_back_while_others_work() {
    let _alone = ALONE.lock().unwrap();
    let config = model(2048, 128, 6);
    let learner = LearnerConfig { lanes: 2, micro_batch_tokens: 1024, ..LearnerConfig::default() };
    let plan = MemoryPlan::new(&config, &settings(&config, learner, 512, false));
    // The matrix library permanently keeps a block of the L2 cache's size per thread. This thread
    // gets its block before counting starts.
    step(&config, learner, &sequences(2, 513, config.vocab_size), false);
    let before = NOW.load(Ordering::Relaxed);
    let mut trained = NativeLearner::new(parameters(&config), learner).unwrap();
    let batch = sequences(8, 513, config.vocab_size);
    trained.forward_backward(&TokenBatch::of(&batch), &Everything { divergences: false }).unwrap();
    trained.step(1e-3).unwrap();
    let held = NOW.load(Ordering::Relaxed) - before;
    trained.release();
    let left = NOW.load(Ordering::Relaxed) - before;
    assert!(held as f64 > 0.9 * plan.peak() as f64);
    assert!((left as f64) < 1.02 * plan.of(PlanPhase::Always) as f64, "{left} bytes are left: {plan:#?}");
    trained.forward_backward(&TokenBatch::of(&batch), &Everything { divergences: false }).unwrap();
    assert_eq!(trained.step(1e-3).unwrap().step, 2);
}
