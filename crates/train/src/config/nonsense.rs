//! Invalid settings and their error messages.

use super::*;

/// Arguments, separated by two spaces, and a part of the expected error.
const NONSENSE: &[(&str, &str)] = &[
    ("optimizer.beta1=1.5", "optimizer.beta1 = 1.5: must be at least 0 and below 1"),
    ("optimizer.beta1=-0.1", "optimizer.beta1"),
    ("optimizer.beta2=1", "optimizer.beta2"),
    ("optimizer.epsilon=-1", "optimizer.epsilon"),
    ("optimizer.epsilon=0", "optimizer.epsilon"),
    ("optimizer.weight_decay=-0.1", "optimizer.weight_decay"),
    ("optimizer.clip_norm=nan", "optimizer.clip_norm = nan: must be a finite number"),
    ("optimizer.clip_norm=-1", "optimizer.clip_norm"),
    ("optimizer.clip_norm=inf", "optimizer.clip_norm"),
    ("train.schedule={kind=\"cosine\", min_lr_ratio=-0.1}", "train.schedule.min_lr_ratio"),
    ("train.schedule={kind=\"linear\", decay_start=2, min_lr_ratio=0}", "train.schedule.decay_start"),
    ("train.schedule={kind=\"cosine\"}", "train.schedule.min_lr_ratio: is missing"),
    ("train.schedule={kind=\"constant\", min_lr_ratio=0.1}", "train.schedule.min_lr_ratio: unknown key"),
    ("train.schedule={kind=\"cosin\", min_lr_ratio=0}", "Did you mean \"cosine\"?"),
    ("sft.schedule.min_lr_ratio=0.1", "sft.schedule.min_lr_ratio"),
    ("train.steps=-1", "train.steps"),
    ("credit.encoder=\"e5\"", "credit.encoder: is set, and nothing is matched by embedding"),
    ("train.steps=1.5", "train.steps"),
    ("train.learning_rate=-1e-6", "train.learning_rate"),
    ("train.learning_rate=10", "train.learning_rate"),
    ("train.learning_rate=nan", "train.learning_rate"),
    ("train.num_minibatches=0", "train.num_minibatches"),
    ("train.num_minibatches=1000000", "train.num_minibatches: is 1000000, and a step has 128 trajectories"),
    ("train.num_minibatches=1e6", "train.num_minibatches"),
    ("train.ppo_epochs=0", "train.ppo_epochs"),
    ("train.ppo_epochs=100000", "train.ppo_epochs"),
    (
        "train.explain=true  train.save_trajectories=false",
        "train.explain: is true, and explanations are stored",
    ),
    ("train.num_workers=0", "train.num_workers"),
    ("train.num_workers=1000000000", "train.num_workers = 1000000000: must be at least 1 and at most 256"),
    ("train.micro_batch_tokens=0", "train.micro_batch_tokens"),
    ("train.skip_zero_advantage=1", "train.skip_zero_advantage"),
    ("critic.learning_rate=1e-4", "critic.learning_rate: is set, and there is no critic"),
    ("critic.warmup=10", "critic.warmup: is set, and there is no critic"),
    (
        "credit.estimator={kind=\"ppo\"}  critic.warmup_steps=20  train.steps=20",
        "critic.warmup_steps: is 20, and the policy would not be updated",
    ),
    (
        "credit.estimator={kind=\"ppo\"}  train.skip_equal_groups=true",
        "train.skip_equal_groups: is true, and a critic learns from every trajectory",
    ),
    (
        "preset=vineppo  train.skip_equal_groups=true",
        "train.skip_equal_groups: is true, and `monte-carlo` learns from every trajectory",
    ),
    (
        "credit.refinements=[{kind=\"has\", decomposer=\"external\", signal=\"change\"}]  decomposer={kind=\"turnrd\"}",
        "signal has no effect with decomposer",
    ),
    (
        "objective.kl.apply_to=reward",
        "objective.kl.apply_to: is set, and has no effect: the KL penalty is off",
    ),
    ("objective.kl.estimator=k1", "objective.kl.estimator: is set, and has no effect"),
    (
        "credit.estimator={kind=\"gigpo\", anchor={threshold=0.8, autojunk=true}}",
        "credit.estimator.anchor.autojunk: is set, and has no effect",
    ),
    (
        "preset=stapo  credit.outliers.anchor.threshold=0.8",
        "credit.outliers.anchor.threshold: is set, and has no effect",
    ),
    (
        "credit.refinements=[{kind=\"salt\", threshold=0.9}]",
        "credit.refinements[0].threshold: is set, and has no effect",
    ),
    (
        "preset=has-attention  decomposer.network.value_clip=1",
        "decomposer.network.value_clip: is set, and has no effect",
    ),
    ("sft.learning_rate=1e-4", "sft.learning_rate: is set, and has no effect: there is no warm start"),
    ("train.save_trajectories=yes", "train.save_trajectories"),
    ("rollout.num_workers=1000000000", "rollout.num_workers"),
    ("rollout.max_num_seqs=0", "rollout.max_num_seqs"),
    ("rollout.env_threads=0", "rollout.env_threads"),
    ("rollout.env_timeout_s=0", "rollout.env_timeout_s"),
    ("rollout.env_timeout_s=-1", "rollout.env_timeout_s"),
    ("rollout.env_timeout_s=inf", "rollout.env_timeout_s"),
    ("rollout.env_retries=-1", "rollout.env_retries"),
    ("rollout.on_error=drop", "rollout.on_error"),
    ("rollout.max_resamples=1000000", "rollout.max_resamples"),
    ("rollout.max_num_seqs=1000000000", "rollout.max_num_seqs"),
    ("rollout.tasks_per_step=0", "rollout.tasks_per_step"),
    (
        "rollout.tasks_per_step=65536  rollout.group_size=4096",
        "rollout.tasks_per_step: makes 268435456 trajectories",
    ),
    ("rollout.group_size=0", "rollout.group_size"),
    ("rollout.group_size=1", "rollout.group_size"),
    ("rollout.temperature=0", "rollout.temperature"),
    ("rollout.temperature=-1", "rollout.temperature"),
    ("rollout.temperature=inf", "rollout.temperature"),
    ("rollout.top_p=0", "rollout.top_p"),
    ("rollout.top_p=1.1", "rollout.top_p"),
    ("rollout.top_k=-1", "rollout.top_k"),
    ("rollout.max_response_tokens=0", "rollout.max_response_tokens"),
    ("rollout.max_model_len=0", "rollout.max_model_len"),
    ("rollout.max_model_len=512", "rollout.max_model_len: is 512, which leaves no token for a prompt"),
    ("prompt.compact_after=0", "prompt.compact_after"),
    (
        "prompt.compact_after=400  prompt.layout=windowed",
        "prompt.compact_after: is set, and with prompt.layout",
    ),
    (
        "prompt.compact_after=2400",
        "prompt.compact_after: is 2400, which with prompt.max_summary_tokens = 256 leaves no room",
    ),
    ("prompt.max_summary_tokens=9", "prompt.max_summary_tokens: is set, and no summaries are written"),
    (
        "preset=has-turnrd  prompt.compact_after=400  decomposer.network.max_turns=50",
        "decomposer.network.max_turns: is 50",
    ),
    ("rollout.filter_groups={kind=\"dynamic\", max_rounds=0}", "rollout.filter_groups.max_rounds"),
    ("rollout.filter_groups={kind=\"rejection\", oversample=0}", "rollout.filter_groups.oversample"),
    ("rollout.filter_groups={kind=\"all\", max_rounds=3}", "rollout.filter_groups.max_rounds: unknown key"),
    ("rollout.filter_groups={kind=\"dynamic\"}  rollout.group_size=1", "rollout.filter_groups"),
    ("rollout.overlong.buffer=9999", "rollout.overlong.buffer"),
    ("rollout.overlong.penalty=-1", "rollout.overlong.penalty"),
    ("eval.temperature=-0.5", "eval.temperature"),
    ("eval.splits=[\"train\"]", "eval.splits: has the split \"train\""),
    ("eval.splits=[\"valid_seen\", \"valid_seen\"]", "eval.splits: names \"valid_seen\" twice"),
    ("eval.splits=valid_seen", "eval.splits"),
    ("eval.every=-1", "eval.every"),
    ("env.max_turns=0", "env.max_turns"),
    ("env.reward_scale=0", "env.reward_scale"),
    ("env.reward_scale=nan", "env.reward_scale"),
    ("name=a/b", "name"),
    ("name=..", "name"),
    ("name=", "name"),
    ("name=-rf", "name: is \"-rf\"; it must be a plain folder name"),
    ("name=\"a\\u0000b\"", "name: is \"a\\0b\"; it must be"),
    ("name=\"a\\nb\"", "name: is \"a\\nb\"; it must be"),
    ("name=\"a\\tb\"", "name: is \"a\\tb\"; it must be"),
    ("name=\"\\u001b[2J\"", "name: is \"\\u{1b}[2J\"; it must be"),
    ("name=\"a\\u202eb\"", "name: is \"a\\u{202e}b\"; it must be"),
    ("seed=-1", "seed"),
    ("prompt.template=webshop", "prompt.template: is \"webshop\", a template of another world"),
    ("prompt.template=alfworld-compat", "Did you mean \"alfworld-compact\"?"),
    ("prompt.layout=windowd", "prompt.layout = \"windowd\": must be one of"),
    ("prompt.history=-1", "prompt.history"),
    ("prompt.chat=off  prompt.thinking=on", "prompt.thinking"),
    ("prompt.chat=off  prompt.system=hello", "prompt.system"),
    ("policy.device=gpu", "policy.device = \"gpu\": must be one of `cpu`, `cuda`"),
    ("policy.compute=fp16", "policy.compute"),
    ("policy.lora.rank=0", "policy.lora.rank"),
    ("policy.lora.alpha=0", "policy.lora.alpha"),
    ("policy.lora.dropout=1", "policy.lora.dropout"),
    ("policy.lora.targets=[]", "policy.lora.targets"),
    ("policy.lora.targets=[\"q_prj\"]", "policy.lora.targets"),
    ("policy.lora.droput=0.1", "Did you mean `dropout`"),
    ("policy.scratch.heads=0", "policy.scratch.heads"),
    ("policy.scratch.heads=3", "policy.scratch.hidden_size"),
    ("policy.scratch.hidden_size=12", "policy.scratch.hidden_size: is 12, which makes heads of width 3"),
    ("policy.scratch.key_value_heads=3", "policy.scratch.key_value_heads"),
    ("policy.scratch.layers=1000000", "policy.scratch.layers"),
    ("policy.scratch.hidden_size=16384  policy.scratch.layers=256", "policy.scratch: makes a model of about"),
    ("policy.scratch.rope_theta=0", "policy.scratch.rope_theta"),
    ("policy.scratch.initializer_range=-1", "policy.scratch.initializer_range"),
    ("sft.steps=1  sft.demonstrations=0", "sft.demonstrations"),
    ("sft.batch_tokens=0", "sft.batch_tokens"),
    ("sft.observation_weight=-1", "sft.observation_weight"),
    ("sft.warmup=-5", "sft.warmup"),
    ("credit.estimator={kind=\"grpo\", ddof=2}", "credit.estimator.ddof"),
    ("credit.estimator={kind=\"grpo\", epsilon=-1}", "credit.estimator.epsilon"),
    ("credit.estimator={kind=\"grpo\", invalid_penalty=-1}", "credit.estimator.invalid_penalty"),
    ("credit.estimator={kind=\"gigpo\", gamma=1.1}", "credit.estimator.gamma"),
    ("credit.estimator={kind=\"gigpo\", omega=inf}", "credit.estimator.omega"),
    ("credit.estimator={kind=\"gigpo\", anchor={threshold=2}}", "credit.estimator.anchor.threshold"),
    ("credit.estimator={kind=\"hgpo\", levels=0}", "credit.estimator.levels"),
    ("credit.estimator={kind=\"ppo\", lambda=2}", "credit.estimator.lambda"),
    ("credit.estimator={kind=\"rloo\", normalize=\"mean\"}", "credit.estimator.normalize: unknown key"),
    ("credit.estimator.kind=gppo", "credit.estimator.kind = \"gppo\": must be one of"),
    ("credit.refinements=[{kind=\"aem\", lambda=1000}]", "credit.refinements[0].lambda"),
    ("credit.refinements=[{kind=\"salt\", history=0}]", "credit.refinements[0].history"),
    ("credit.refinements=[{kind=\"has\", alpha=1.5}]", "credit.refinements[0].alpha"),
    ("credit.refinements=[{kind=\"empg\", zeta=nan}]", "credit.refinements[0].zeta"),
    ("credit.refinements=[{kind=\"has\", decomposer=\"external\"}]", "decomposer: `has` with"),
    ("credit.outliers.lambda=1.5", "credit.outliers"),
    ("credit.estimator={kind=\"ppo\"}  credit.refinements=[{kind=\"salt\"}]", "credit: salt"),
    ("objective.selective.alpha=0.1", "objective.selective"),
    ("objective.clip=[0.2]", "objective.clip"),
    ("objective.clip=[-0.1, 0.2]", "objective.clip[0]"),
    ("objective.clip.low=1.5", "objective.clip.low"),
    ("objective.clip.high=nan", "objective.clip.high"),
    ("objective.dual_clip=1", "objective.dual_clip"),
    ("objective.kl.coef=-0.01", "objective.kl.coef"),
    ("objective.kl.adaptive.target=0.1", "kl.adaptive"),
    ("objective.kl={coef=0.1, adaptive={min=2, max=1}}", "kl.adaptive"),
    ("objective.kl={coef=0.1, estimator=\"full\", apply_to=\"reward\"}", "kl.estimator"),
    ("objective.entropy_coef=inf", "objective.entropy_coef"),
    ("objective.normalization.delta=0", "objective.normalization.delta"),
    ("objective.ratio=sequence  credit.estimator.kind=ppo", "objective.ratio"),
    ("critic.lora.rank=4", "critic.lora"),
    ("critic.learning_rate=-1", "critic.learning_rate"),
    ("critic.clip=-1", "critic.clip"),
    ("decomposer={kind=\"turnrd\"}", "decomposer: is set, and nothing uses it"),
    ("decomposer={kind=\"none\", model=\"m\"}", "decomposer.model: unknown key"),
    ("preset=has-turnrd  decomposer.network.heads=3", "decomposer.network"),
    ("preset=has-turnrd  decomposer.network.dropout=1", "decomposer.network.dropout"),
    ("preset=has-turnrd  decomposer.network.max_turns=10", "decomposer.network.max_turns"),
    ("preset=has-turnrd  decomposer.hold_out=1", "decomposer.hold_out"),
    ("preset=has-turnrd  decomposer.network.num_workers=1000000000", "decomposer.network.num_workers"),
    ("preset=has-judge  decomposer.model=m  decomposer.concurrency=0", "decomposer.concurrency"),
    ("preset=has-judge  decomposer.model=m  decomposer.timeout_s=0", "decomposer.timeout_s"),
    ("preset=has-judge  decomposer.model=m  decomposer.endpoint=localhost", "decomposer.endpoint: "),
    ("polisy.device=cpu", "Did you mean `policy`?"),
];

const WORLDS: &[(&str, &str)] = &[
    ("env.kind=webship", "env.kind"),
    ("env.generator.floor_plans=0", "env.generator.floor_plans"),
    ("env.generator.floor_plans=500", "env.generator.floor_plans"),
    ("env.generator.train=0", "env.generator.train"),
    ("env.generator.task_types=[]", "env.generator.task_types"),
    ("env.generator.task_types=[\"juggle\"]", "env.generator.task_types[0] = \"juggle\""),
    ("env.generator.size=huge", "env.generator.size"),
    ("env.kind=webshop  env.generator.products=0", "env.generator.products"),
    ("env.kind=webshop  env.goals_per_product=0", "env.goals_per_product"),
    ("env.kind=webshop  env.goals=robot", "env.goals"),
    ("env.kind=webshop  prompt.template=alfworld", "prompt.template"),
    ("sft.invalid_action_prob=1", "sft.invalid_action_prob"),
    (
        "sft.invalid_action_prob=0.999999",
        "sft.invalid_action_prob = 0.999999: must be at least 0 and at most 0.9",
    ),
    ("env.kind=webshop  env.expert.option_drop_prob=2", "env.expert.option_drop_prob"),
    ("env.expert.option_drop_prob=0.5", "env.expert"),
    ("env.kind=search  preset=has-progressive", "credit.refinements: `has` takes credit from progress"),
    ("env.kind=ezpoints  preset=has-progressive", "credit.refinements: `has` takes credit from progress"),
];

#[test]
fn nonsense_is_refused_and_named() {
    assert!(NONSENSE.len() + WORLDS.len() >= 80);
    let mut wrong = Vec::new();
    for (arguments, expected) in NONSENSE.iter().chain(WORLDS) {
        let overrides: Vec<String> = arguments.split("  ").map(str::to_owned).collect();
        match load(&ConfigSource { overrides, ..ConfigSource::default() }) {
            Ok(_) => wrong.push(format!("{arguments}: passes")),
            Err(error) => {
                let text = error.to_string();
                if !text.contains(expected) {
                    wrong.push(format!("{arguments}: {text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), NONSENSE.len() + WORLDS.len(), wrong.join("\n"));
}

#[test]
fn names_of_runs_fit_every_file_system() {
    let named = |name: &str| {
        load(&ConfigSource { overrides: vec![format!("name={name}")], ..ConfigSource::default() })
    };
    for name in ["grpo-seed-0", "läuft 漢字", "a".repeat(200).as_str()] {
        assert_eq!(named(name).unwrap().name, name);
    }
    for name in ["a".repeat(300), "漢".repeat(100)] {
        assert!(named(&name).unwrap_err().to_string().contains("at most 200 bytes"), "{name}");
    }
}
