#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with a GPU: builds the GPU operators, checks them on it against double arithmetic, measures each beside a
# plain copy, and beside PyTorch and flash-linear-attention where those can be imported. Writes JSON and a table.
# Needs nvcc and g++; python3 for the table, torch for the comparison. No packages, no network. Stops before 8 minutes.
#
#   bench/gpu.sh [output folder]       default: build/gpu
#
# What cannot run is printed as "not run" with the reason. Status: 0 all checks passed, 77 no GPU or no nvcc, 1 otherwise.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

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
if [[ -z $capability && ${PLUMB_GPU_BUILD_ONLY:-} != 1 ]]; then
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
if [[ ${PLUMB_GPU_BUILD_ONLY:-} == 1 ]]; then
  echo "built only, as asked"
  exit 0
fi

say "checks against double arithmetic"
timeout "$(left)" "$out/gpu_check" | tee "$out/check.txt"
check=${PIPESTATUS[0]}

say "operators beside a copy"
timeout "$(left)" "$out/gpu_measure" > "$out/measure.json" || echo "not run: gpu_measure ended with $?"

say "PyTorch and flash-linear-attention"
timeout "$(left)" python3 bench/gpu_torch.py > "$out/torch.json" || echo "not run: gpu_torch.py ended with $?"

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


gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
report = {"gpu": gpu.stdout.strip(), "check": (out / "check.txt").read_text().splitlines()[-1:],
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
print(json.dumps(report["torch"], indent=2))
PYTHON
exit "$check"
