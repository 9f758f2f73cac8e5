#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with a GPU: builds the GPU operators, checks them on it against double arithmetic, measures each beside a
# plain copy, and beside PyTorch and flash-linear-attention where those can be imported. Writes JSON and a table.
# Needs nvcc and g++; python3 for the table, torch for the comparison. No packages, no network. Stops before 8 minutes.
#
#   bench/gpu.sh [--dry-run] [output folder]       default: build/gpu
#
# --dry-run, on any machine with nvcc: builds the same, walks through the rest on the CPU, says what was not run.
# What cannot run is printed as "not run" with the reason. Status: 0 all checks passed, 77 no GPU or no nvcc, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

dry=
if [[ ${1:-} == --dry-run ]]; then
  dry=--dry-run
  shift
fi
out=${1:-build/gpu}
limit_s=460
mkdir -p "$out"

left() { echo $((limit_s - SECONDS > 1 ? limit_s - SECONDS : 1)); }
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [[ -z $nvcc ]]; then
  echo "not run: no nvcc on this machine"
  exit 77
fi
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
if [[ -z $capability && -z $dry ]]; then
  echo "not run: no GPU on this machine"
  exit 77
fi
capability=${capability:-90}

say "build for sm_$capability"
jobs=$(nproc)
include=(-Ikernels -Ikernels/include -Ibench -Itests)
kernel_flags=(-std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -gencode "arch=compute_$capability,code=sm_$capability")
host_flags=(-std=c++20 -O2 -ffp-contract=off "-I$cuda/include")
vector_flags() {
  case $1 in
    kernels/cpu_avx2.cpp) echo "-mavx2 -mfma -mf16c" ;;
    kernels/cpu_avx512.cpp) echo "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl" ;;
  esac
}
host=(kernels/{counter_rng,cpu_baseline,cpu_execution,cpu_fp64,cpu_operand_check,cpu_operators,cpu_threads}.cpp
  kernels/{depth_attention,depth_attention_backward,storage}.cpp kernels/cuda/{cuda_operators,operand_rules}.cpp)
if [[ $(uname -m) == x86_64 ]]; then
  host+=(kernels/cpu_avx2.cpp kernels/cpu_avx512.cpp)
else
  host+=(kernels/cpu_no_x86.cpp)
fi
object() { echo "$out/$(basename "${1%.*}").o"; }
status=0
pids=()
throttle() {
  while (($(jobs -rp | wc -l) >= jobs)); do sleep 0.1; done  # their status is asked for below
}
objects=()
for source in kernels/cuda/kernels_{fp32,bf16,fp16}.cu; do
  throttle
  "$nvcc" "${kernel_flags[@]}" "${include[@]}" -c "$source" -o "$(object "$source")" &
  pids+=($!)
  objects+=("$(object "$source")")
done
for source in "${host[@]}" bench/gpu_check.cpp bench/gpu_measure.cpp; do
  throttle
  # shellcheck disable=SC2046
  g++ "${host_flags[@]}" $(vector_flags "$source") "${include[@]}" -c "$source" -o "$(object "$source")" &
  pids+=($!)
  [[ $source == bench/* ]] || objects+=("$(object "$source")")
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
for program in gpu_check gpu_measure; do
  g++ "$out/$program.o" "${objects[@]}" "-L$cuda/lib64" -lcudart_static -lpthread -ldl -lrt -o "$out/$program" || status=1
done
if ((status != 0)); then
  echo "the build failed"
  exit 1
fi

say "machine code"
cuobjdump=$(command -v cuobjdump || ls "$cuda/bin/cuobjdump" 2>/dev/null)
if [[ -z $cuobjdump ]]; then
  echo "not run: no cuobjdump on this machine"
else
  python3 -B kernels/cuda/check_sass.py "$cuobjdump" "sm_$capability" "$out"/kernels_{fp32,bf16,fp16}.o > "$out/sass.txt"
  sass=$?
  tail -n 1 "$out/sass.txt"
  ((sass == 0)) || grep -B 1 FAILED "$out/sass.txt"
fi

say "checks against double arithmetic"
timeout "$(left)" "$out/gpu_check" | tee "$out/check.txt"
check=${PIPESTATUS[0]}

say "operators beside a copy"
timeout "$(left)" "$out/gpu_measure" > "$out/measure.json"
measure=$?
((measure == 0 || measure == 77)) || echo "not run: gpu_measure ended with $measure"

say "PyTorch and flash-linear-attention"
timeout "$(left)" python3 bench/gpu_torch.py $dry > "$out/torch.json" || echo "not run: gpu_torch.py ended with $?"

say "report: $out/gpu.json"
python3 - "$out" << 'PYTHON' || echo "not run: no table without python3"
import json
import pathlib
import subprocess
import sys

out = pathlib.Path(sys.argv[1])


def read(name):
    try:
        return json.loads((out / name).read_text())
    except (OSError, ValueError):
        return "not run"


def gpu():
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


report = {"gpu": gpu(), "check": (out / "check.txt").read_text().splitlines()[-1:],
          "measure": read("measure.json"), "torch": read("torch.json")}
(out / "gpu.json").write_text(json.dumps(report, indent=2) + "\n")
measure = report["measure"]
if isinstance(measure, dict):
    print(f"{report['gpu']}: copy {measure['copy_gb_per_s']:.0f} GB/s")
    print("| operator | GB | ms | GB/s | of copy |\n|---|---|---|---|---|")
    for row in measure["operators"]:
        print(f"| {row['operator']} | {row['bytes'] / 1e9:.2f} | {row['ms']:.3f} | {row['gb_per_s']:.0f} | {row['of_copy']:.0%} |")
else:
    print("operators:", measure)
# One query over all sources, as PyTorch has it: forward, and forward with backward.
ours = {row["operator"]: row["ms"] for row in measure["operators"]} if isinstance(measure, dict) else {}
forward = ours.get("aggregate_forward")
both = forward and forward + ours["aggregate_backward"]
print("\n| one query | forward ms | forward + backward ms |\n|---|---|---|")
print(f"| ours | {forward or 'not run'} | {round(both, 4) if both else 'not run'} |")
for name, row in report["torch"].items() if isinstance(report["torch"], dict) else []:
    if isinstance(row, dict):
        print(f"| {name} | {row['forward_ms']} | {row['forward_backward_ms']} |")
    elif row.startswith("not run"):
        print(f"| {name} | {row} | |")
print(json.dumps(report["torch"], indent=2))
PYTHON
if [[ -n $dry && $check == 77 ]]; then
  exit 0  # all was walked through that can be without a GPU
fi
exit "$check"
