#!/usr/bin/env bash
# Checks and measures the CUDA path on a machine with a GPU that has no Rust and no network, in a few minutes.
#
#   benches/device.sh prepare DIR              build what travels into DIR, stripped; its size is printed
#   benches/device.sh run DIR RESULTS          run every step; needs DIR and a Python with PyTorch
#   benches/device.sh run DIR RESULTS --only tests,speed
#
# DIR must stay under 60 MiB. RESULTS has a log for each step and `summary.tsv`, written as each step ends. Each step has
# a time limit and a failing step does not end the others. Without a GPU the same steps run as a rehearsal: what needs a
# device prints why it was skipped, and speed is not measured. Libraries of CUDA come from the Python packages of PyTorch,
# or from the folders in TURNWISE_CUDA_PATH.
#
# | step | what | limit |
# |---|---|---|
# | check    | driver, NVRTC, cuBLAS; all kernels compile for four architectures | 60 s |
# | tests    | crates/model/tests/it/cuda.rs: learner and sampler beside the CPU | 90 s |
# | memcheck | the same on a small model under compute-sanitizer memcheck | 90 s |
# | racecheck| the same under racecheck | 90 s |
# | learn    | the quickstart on the device beside the CPU: success, mismatch, losses | 120 s |
# | grpo     | GRPO with LoRA on random weights of two shapes; the other examples on the device | 90 s |
# | smollm2  | configs/smollm2/ezpoints.toml on a real model in DIR/model, if there is one | 150 s |
# | speed    | benches/peer/gpu.py: training and decoding beside PyTorch | 240 s |
# | kernels  | ncu: time by kernel of one training step, then the three slowest in detail | 90 s |
#
# What is known to be slow from reading, to be looked at in these numbers: environments step on the thread that drives
# the device; training computes every sequence in full (no shared prefixes); an adapter's products are small and many; a
# step of decoding copies its choices to the host and waits; a graph is captured again for each number of rows.
set -uo pipefail

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
    exit 2
}

EXAMPLES=(cuda_check gpu_speed grpo_speed train_speed sample_speed prefix_speed)

prepare() {
    local folder=$1 root messages
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
    mkdir -p "$folder"
    cd "$root" || exit 1
    local examples=()
    for name in "${EXAMPLES[@]}"; do examples+=(--example "$name"); done
    cargo build --release -p turnwise-cli -p turnwise-model --features turnwise-cli/cuda --bin turnwise "${examples[@]}" || exit 1
    messages=$(cargo test --release -p turnwise-model -p turnwise-cli --features turnwise-cli/cuda --test it --no-run \
        --message-format=json 2>/dev/null) || exit 1
    local tests program=${CARGO_TARGET_DIR:-target}/release
    tests=$(printf '%s\n' "$messages" | grep -o '"executable":"[^"]*turnwise[^"]*"\|"executable":"[^"]*/it-[^"]*"' \
        | cut -d'"' -f4 | while read -r file; do [[ $("$file" --list 2>/dev/null) == *the_device_trains* ]] && echo "$file"; done | head -n 1)
    [[ -n $tests ]] || { echo "no test binary has the device's tests" >&2; exit 1; }
    cp "$program/turnwise" "$folder/"
    for name in "${EXAMPLES[@]}"; do cp "$program/examples/$name" "$folder/"; done
    cp "$tests" "$folder/cuda_tests"
    strip "$folder"/turnwise "$folder"/cuda_tests "${EXAMPLES[@]/#/$folder/}"
    cp benches/device.sh benches/peer/gpu.py "$folder/"
    if [[ -f configs/smollm2/ezpoints.toml ]]; then cp configs/smollm2/ezpoints.toml "$folder/"; fi
    du -sh "$folder"
    du -b "$folder"/* | sort -n
}

# The folders of the CUDA libraries that come with PyTorch.
cuda_folders() {
    "${TURNWISE_PYTHON:-python3}" -c '
import glob, os, site, sysconfig
roots = {sysconfig.get_paths()["purelib"], *site.getsitepackages()}
print(os.pathsep.join(sorted(f for r in roots for f in glob.glob(os.path.join(r, "nvidia", "*", "lib")))))' 2>/dev/null
}

# A program that may be outside PATH, in the toolkit's folder.
tool() {
    command -v "$1" 2>/dev/null || ls /usr/local/cuda*/bin/"$1" /opt/nvidia/nsight-compute/*/"$1" 2>/dev/null | head -n 1
}

check() {
    if [[ -n $gpu ]]; then
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
        "$folder/cuda_check" device || return
    else
        echo "skipped: no device; the kernels are compiled if NVRTC is here"
    fi
    "$folder/cuda_check" || [[ $? == 3 && -z $gpu ]]
}

tests() { "$folder/cuda_tests" cuda:: --nocapture --test-threads=1; }

sanitize() {
    local program
    program=$(tool compute-sanitizer)
    [[ -n $program ]] || { echo "skipped: compute-sanitizer is not installed"; return 0; }
    [[ -n $gpu ]] || { echo "skipped: no device; this would run: compute-sanitizer --tool $1 cuda_tests cuda:: (small)"; return 0; }
    TURNWISE_CUDA_SMALL=1 "$program" --tool "$1" --error-exitcode 9 --print-limit 20 \
        "$folder/cuda_tests" cuda:: --nocapture --test-threads=1
}

# The last line of a run's metrics, the keys that matter.
metrics() {
    "${TURNWISE_PYTHON:-python3}" - "$1" <<'PYTHON'
import json, sys, pathlib
run = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
keys = ["rollout/success", "rollout/mismatch_kl", "loss/policy", "loss/grad_norm", "perf/step_s", "perf/rollout_s", "perf/update_s"]
for row in rows:
    print(row.get("step"), {key: round(row[key], 6) for key in keys if key in row} or {k: v for k, v in row.items() if k.startswith("sft")})
for file in sorted((run / "eval").glob("*.json")):
    text = json.loads(file.read_text())
    print(file.name, json.dumps(text)[:400])
PYTHON
}

learn() {
    local device=cpu
    [[ -z $gpu ]] || device=cuda
    local settings=(train.steps=20 eval.tasks=64 eval.every=20)
    [[ -n $gpu ]] || settings=(--smoke)
    rm -rf "$results/runs"
    (cd "$results" && "$folder/turnwise" quickstart --runs runs/cpu "${settings[@]}" >cpu.log 2>&1) &
    local started=$SECONDS
    (cd "$results" && "$folder/turnwise" quickstart --runs runs/device "${settings[@]}" policy.device=$device >device.log 2>&1)
    local status=$?
    echo "on $device: $((SECONDS - started)) s, exit $status"
    wait
    echo "both: $((SECONDS - started)) s"
    for side in cpu device; do
        echo "== $side"
        tail -n 25 "$results/$side.log"
        for run in "$results/runs/$side"/*/; do metrics "$run"; done
    done
    return $status
}

grpo() {
    if [[ -z $gpu ]]; then
        "$folder/grpo_speed" shape=smollm2-135m groups=1 size=2 prompt=32 response=4 rounds=1
        return
    fi
    for name in smollm2-135m qwen2.5-0.5b; do
        "$folder/grpo_speed" shape=$name groups=8 size=8 prompt=256 response=32 device=cuda micro=65536 rounds=5 || return
    done
    "$folder/train_speed" device=cuda sequences=64 && "$folder/sample_speed" cuda=1 lanes=1 \
        && "$folder/prefix_speed" device=cuda micro=65536
}

smollm2() {
    [[ -d $folder/model ]] || { echo "skipped: no model in $folder/model; tools that make one are named in docs/results/smollm2.md"; return 0; }
    local device=cpu
    [[ -z $gpu ]] || device=cuda
    [[ -z $gpu ]] || "$folder/grpo_speed" "model=$folder/model" groups=8 size=8 prompt=256 response=32 device=cuda micro=65536 rounds=5
    rm -rf "$results/smollm2-runs"
    (cd "$results" && "$folder/turnwise" train "$folder/ezpoints.toml" --runs smollm2-runs "policy.model=$folder/model" \
        policy.device=$device train.steps="${STEPS:-6}") || return
    for run in "$results/smollm2-runs"/*/; do metrics "$run"; done
}

speed() {
    if [[ -z $gpu ]]; then
        "${TURNWISE_PYTHON:-python3}" "$folder/gpu.py" --help >/dev/null && echo "skipped: no device; this would run gpu.py"
        return
    fi
    "${TURNWISE_PYTHON:-python3}" "$folder/gpu.py" --program "$folder/gpu_speed" --output "$results/gpu.json" --no-eager \
        --steps 6 --slots 1,8,64,256 --generate 64
}

# Fills torch.compile's cache.
warm() {
    for name in qwen2.5-0.5b qwen2.5-1.5b; do
        for more in "" --adapter; do
            timeout 150 "${TURNWISE_PYTHON:-python3}" "$folder/gpu.py" --child train --shape $name $more --steps 1 >>"$results/warm.log" 2>&1 &
        done
    done
    wait
}

# Sums ncu's times by kernel.
by_kernel() {
    "${TURNWISE_PYTHON:-python3}" - "$1" "$2" <<'PYTHON'
import csv, sys
rows = [line for line in open(sys.argv[1]) if line.startswith('"')]
total, count = {}, {}
for row in csv.DictReader(rows):
    if row.get("Metric Name") != "gpu__time_duration.sum":
        continue
    name = row["Kernel Name"].split("(")[0][:70]
    value = float(row["Metric Value"].replace(",", ""))
    unit = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}.get(row["Metric Unit"], 1)
    total[name] = total.get(name, 0) + value * unit
    count[name] = count.get(name, 0) + 1
order = sorted(total, key=total.get, reverse=True)
whole = sum(total.values()) or 1
for name in order:
    print(f"{total[name]:12.0f} us {100 * total[name] / whole:5.1f} % {count[name]:6} {name}", file=sys.stderr)
own = [name for name in order if "gemm" not in name and "nvjet" not in name and "cutlass" not in name]
open(sys.argv[2], "w").write("\n".join(own[:3]))
PYTHON
}

# Times kernels of a program: profile NAME SKIP COUNT ARGUMENTS..
profile() {
    local name=$1 skip=$2 count=$3
    shift 3
    echo "== $name: $*"
    "$ncu" --clock-control none --graph-profiling node --metrics gpu__time_duration.sum --csv --launch-skip "$skip" \
        --launch-count "$count" "$folder/gpu_speed" "$@" >"$results/ncu-$name.csv" 2>&1
    by_kernel "$results/ncu-$name.csv" "$results/slowest-$name" 2>&1
}

kernels() {
    local ncu
    ncu=$(tool ncu)
    [[ -n $ncu ]] || { echo "skipped: ncu is not installed"; return 0; }
    [[ -n $gpu ]] || { echo "skipped: no device; this would run ncu on a training step and on decoding"; return 0; }
    local step=(train shape=qwen2.5-0.5b sequences=8 length=1024 steps=0)
    profile train 2000 1400 "${step[@]}"
    # Two steps of prompts and one of decoding come before steps are replayed.
    profile decode 900 560 decode shape=qwen2.5-0.5b slots=64 prompt=64 new=32
    while read -r name; do
        [[ -z $name ]] || "$ncu" --clock-control none --set basic --section MemoryWorkloadAnalysis --section WarpStateStats \
            -k "$name" --launch-skip 3 --launch-count 1 "$folder/gpu_speed" "${step[@]}" 2>&1 | grep -v '^==PROF==' | sed -n 1,60p
    done <"$results/slowest-train"
}

# Runs a step within its limit; its output goes to its log, its last lines to the terminal.
step() {
    local name=$1 limit=$2 started=$SECONDS status
    shift 2
    if [[ -n $only && ",$only," != *",$name,"* ]]; then return; fi
    # In a shell of its own, so that the limit ends all that it started.
    timeout --kill-after=5 "$limit" bash "$folder/device.sh" --step "$folder" "$results" "$@" >"$results/$name.log" 2>&1
    status=$?
    printf '%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - started))" >>"$results/summary.tsv"
    printf '== %s: exit %s after %s s\n' "$name" "$status" "$((SECONDS - started))"
    tail -n "${TAIL:-15}" "$results/$name.log" | cut -c1-200
}

run() {
    only=""
    if [[ ${1:-} == --only ]]; then only=${2:-}; fi
    : >"$results/summary.tsv"
    # torch.compile takes a minute and keeps what it made: beside the steps that are not timed.
    if [[ -n $gpu && (-z $only || ",$only," == *",speed,"*) ]]; then warm & fi
    step check 60 check
    step tests 90 tests
    step learn 120 learn
    step memcheck 90 sanitize memcheck
    step racecheck 90 sanitize racecheck
    step grpo 90 grpo
    step smollm2 150 smollm2
    wait
    TAIL=20 step speed 240 speed
    TAIL=40 step kernels 90 kernels
    echo
    cat "$results/summary.tsv"
}

case ${1:-} in
    prepare) [[ $# == 2 ]] || usage; prepare "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
    run | --step)
        [[ $# -ge 3 ]] || usage
        folder="$(cd "$2" && pwd)" && results="$(mkdir -p "$3" && cd "$3" && pwd)" || exit 1
        verb=$1
        shift 3
        if [[ -z ${TURNWISE_CUDA_PATH:-} ]]; then TURNWISE_CUDA_PATH=$(cuda_folders); fi
        export TURNWISE_CUDA_PATH
        gpu=$(nvidia-smi -L 2>/dev/null | head -n 1)
        if [[ $verb == run ]]; then run "$@"; else "$@"; fi
        ;;
    *) usage ;;
esac
