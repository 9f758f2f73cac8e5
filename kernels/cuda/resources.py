#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what ptxas says of every GPU kernel as a Markdown table: registers, spills, shared memory, per architecture.

    kernels/cuda/resources.py [nvcc] > table.md

Exits with 1 if a kernel spills. Dynamic shared memory is not in it: that is LaunchShape's."""
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = (80, 90, 100)
root = pathlib.Path(__file__).resolve().parents[2]


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    short = []
    for line in text.splitlines():
        line = line.replace("plumb::cuda_detail::", "").replace("plumb::", "")
        line = re.sub(r"^void run_kernel<(.*) ?>\(.*\)$", r"\1", line)
        # The last flag is that of aligned rows; one before it says whether gradients take part.
        line = re.sub(r"true>$", "16 B>", re.sub(r"false>$", "scalar>", line.strip()))
        short.append(line.replace("true", "gradients").replace("false, ", "").strip())
    return short


def kernels_of(nvcc, storage):
    flags = ["-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", f"-I{root}/kernels", f"-I{root}/kernels/include"]
    for each in ARCHITECTURES:
        flags += ["-gencode", f"arch=compute_{each},code=sm_{each}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, *flags, "-Xptxas", "-v", "-c", f"{root}/kernels/cuda/kernels_{storage}.cu", "-o", f"{folder}/o.o"],
            capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = re.findall(
        r"Compiling entry function '(\S+)' for 'sm_(\d+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers", done.stderr, re.S)
    return {(name, int(sm)): (int(registers), int(stores) + int(loads)) for name, sm, stores, loads, registers in found}


def main():
    nvcc = sys.argv[1] if len(sys.argv) > 1 else "nvcc"
    table = {}
    for storage in ("fp32", "bf16", "fp16"):
        table.update(kernels_of(nvcc, storage))
    names = sorted({name for name, _ in table})
    spills = sum(spill for _, spill in table.values())
    print("| kernel | " + " | ".join(f"sm_{each}" for each in ARCHITECTURES) + " |")
    print("|---" * (len(ARCHITECTURES) + 1) + "|")
    for short, name in sorted(zip(demangled(names), names)):
        cells = [f"{table[name, each][0]}" + (f" (spills {table[name, each][1]} B)" if table[name, each][1] else "")
                 for each in ARCHITECTURES]
        print(f"| `{short}` | " + " | ".join(cells) + " |")
    print(f"\n{len(names)} kernels, {len(ARCHITECTURES)} architectures, {spills} bytes spilled.")
    sys.exit(1 if spills else 0)


if __name__ == "__main__":
    main()
