use super::*;

fn read(text: &str) -> anyhow::Result<SweepFile> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("base.toml"), "").unwrap();
    let path = folder.path().join("sweep.toml");
    std::fs::write(&path, text).unwrap();
    SweepFile::read(&path)
}

const WHOLE: &str = "name = \"s\"\nbase = [\"base.toml\"]\nseeds = [3, 5]\nset = [\"train.steps=9\"]\n\
    [[run]]\nname = \"grpo\"\n[[run]]\nname = \"gigpo\"\npreset = \"gigpo\"\nset = [\"credit.omega=0.5\"]\n\
    [grid]\n\"train.learning_rate\" = [1e-4, 3e-4]\nprompt.layout = [\"windowed\"]\n";

#[test]
fn entries_are_the_product_of_runs_grid_and_seeds() {
    let entries = read(WHOLE).unwrap().entries().unwrap();
    let names: Vec<String> = entries.iter().map(Entry::run_name).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "grpo-layout-windowed-learning_rate-0.0001-seed-3");
    assert_eq!(names[7], "gigpo-layout-windowed-learning_rate-0.0003-seed-5");
    let last = &entries[7];
    assert_eq!(last.source.preset.as_deref(), Some("gigpo"));
    assert!(last.source.files[0].ends_with("base.toml"));
    assert_eq!(
        last.source.overrides,
        [
            "train.steps=9",
            "credit.omega=0.5",
            "prompt.layout=\"windowed\"",
            "train.learning_rate=0.0003",
            "seed=5",
            "name=\"gigpo-layout-windowed-learning_rate-0.0003-seed-5\""
        ]
    );
    let plain = read("name = \"s\"\npreset = \"grpo\"\n").unwrap().entries().unwrap();
    assert_eq!(plain.iter().map(Entry::run_name).collect::<Vec<_>>(), ["s-seed-0"]);
}

#[test]
fn settings_of_the_command_line_win_and_vary_nothing() {
    let with = |setting: &str| read(WHOLE).unwrap().with_overrides(&[setting.to_owned()]);
    let entries = with("train.steps=3").unwrap().entries().unwrap();
    for entry in &entries {
        let last = entry.source.overrides.iter().rfind(|text| text.starts_with("train.steps="));
        assert_eq!(last.unwrap(), "train.steps=3");
    }
    for (setting, words) in [
        ("train.steps", "is no setting; write key.sub=value after the sweep file"),
        ("seed=4", "the command line: sets `seed`, which every run of a sweep gets from `seeds`"),
        ("train.learning_rate=1e-5", "and the runs of this sweep differ in `train.learning_rate`"),
        ("credit.omega=0.1", "sets `credit.omega`, and the runs of this sweep differ in `credit.omega`"),
        ("credit={}", "sets `credit`, and the runs of this sweep differ in `credit.omega`"),
    ] {
        let error = with(setting).unwrap_err().to_string();
        assert!(error.contains(words), "{error} | {words}");
    }
}

#[test]
fn mistakes_are_named_with_their_fix() {
    for (from, to, words) in [
        ("name = \"s\"", "nam = \"s\"", "nam: unknown key. Did you mean `name`?"),
        ("name = \"s\"\n", "", "name: is missing; write name"),
        ("name = \"s\"", "name = \"a/b\"", "must be a plain folder name"),
        ("name = \"s\"", "name = \"-rf\"", "without a dot or hyphen in front"),
        ("[3, 5]", "[3, 3]", "seeds: has 3 twice"),
        ("[3, 5]", "[]", "seeds: is empty"),
        ("[3, 5]", "3", "line 3: `seeds = 3`"),
        ("[3, 5]", "[-1]", "line 3: `seeds = [-1]`"),
        ("seeds = [3, 5]", "seeds = [3", "line"),
        ("base.toml", "none.toml", "none.toml; paths are relative to the sweep file"),
        ("base = [\"base.toml\"]\n", "", "base: is missing"),
        ("train.steps=9", "train.steps", "set: \"train.steps\" is no setting"),
        (
            "credit.omega=0.5",
            "seed=1",
            "run[1].set: sets `seed`, which every run of a sweep gets from `seeds`",
        ),
        ("preset = \"gigpo\"", "presets = \"gigpo\"", "run[1].presets: unknown key. Did you mean `preset`?"),
        ("name = \"gigpo\"", "name = \"grpo\"", "there are two [[run]] called \"grpo\""),
        ("name = \"gigpo\"\n", "", "run[1].name: is missing"),
        ("[1e-4, 3e-4]", "1e-4", "grid: `train.learning_rate` is one value"),
        ("[1e-4, 3e-4]", "[]", "grid: `train.learning_rate` has no values"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = read(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains("sweep.toml") && error.contains(words), "{error} | {words}");
    }
    let pooled = |baseline: &str, members: &str| {
        let run = format!("name = \"gigpo\"\n{baseline}");
        read(&(WHOLE.replace("name = \"gigpo\"\n", &run) + &format!("[pool]\nidea = {members}\n")))
    };
    for (baseline, members, words) in [
        ("", "[\"gigpo\"]", "pool.idea: \"gigpo\" has no baseline"),
        (
            "baseline = \"grpo\"\n",
            "[\"gipo\"]",
            "there is no [[run]] called \"gipo\"; there are: gigpo, grpo",
        ),
        ("baseline = \"grpo\"\n", "[]", "pool.idea: is empty"),
    ] {
        let error = pooled(baseline, members).unwrap_err().to_string();
        assert!(error.contains("sweep.toml") && error.contains(words), "{error} | {words}");
    }
    let pools = pooled("baseline = \"grpo\"\n", "[\"gigpo\"]").unwrap().pools();
    let of_point = |rate: &str| {
        let point = format!("layout-windowed-learning_rate-{rate}");
        (format!("idea-{point}"), vec![format!("gigpo-{point}")])
    };
    assert_eq!(pools, [of_point("0.0001"), of_point("0.0003")]);
    let twice = read(&WHOLE.replace("3e-4", "1e-4")).unwrap().entries().unwrap_err().to_string();
    assert!(twice.contains("two runs would both be called"), "{twice}");
}
