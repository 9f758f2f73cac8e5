#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the example model under MPI in many layouts and predicts each step from the run's own profile.

usage: predict_training.py BIN [--steps N] [--only TEXT] [--json FILE]

BIN: folder with plumb and plumb-train. Prints the tables of docs/predicted-training.md. Two ranks are pinned to a core
each. Four ranks share two cores, and their cluster file says so (cores_per_node: 2). As root the runs get a real-time
priority, so that what else runs delays them less. Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

# What a message between two ranks of one machine costs, roughly: it matters little beside computations of 10 ms.
HOP = "--hop-us 100 --hop-GBps 4".split()
BOX = """name: two-cores
gpu: {name: a core, bf16_tflops_dense: 1, hbm_GBps: 10, mem_GiB: 8}
tiers: [{name: memory, GBps_per_dir: 4, latency_us: 100}]
cores_per_node: 2
"""
MODEL = "--layers 8 --block-layers 2 --hidden 256".split()
TRAIN = "--seq 128 --tokens 256".split()
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1", "TMPDIR": "/tmp",
       "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def layouts():
    """(ranks, flags) of every run."""
    for stages in (1, 2, 3, 4):
        for microbatches in (4, 8):
            yield 2, f"--vp {stages} --microbatches {microbatches} --cache cached"
    yield 2, "--vp 1 --microbatches 16 --cache cached"
    for stages in (1, 2, 4):
        for policy in ("naive", "relay", "direct"):
            yield 2, f"--vp {stages} --microbatches 8 --cache {policy}"
    yield 2, "--vp 2 --microbatches 8 --cache cached --cuts auto"
    yield 2, "--vp 2 --microbatches 8 --cache cached --cuts 2,6,11,16"
    yield 2, "--vp 1 --microbatches 8 --cache cached --cuts 5,16"
    for stages in (1, 2):
        for microbatches in (4, 8):
            yield 4, f"--vp {stages} --microbatches {microbatches} --cache cached"


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def measure(folder, ranks, flags, steps):
    """The comparison as `plumb sim --against --json` prints it."""
    layout = ["--pp", str(ranks), *flags.split(), *MODEL]
    with tempfile.TemporaryDirectory(prefix="plumb-predict-") as scratch:
        log, profile, box = (os.path.join(scratch, name) for name in ("run.jsonl", "profile.json", "box.yaml"))
        with open(box, "w", encoding="utf-8") as file:
            file.write(BOX)
        command = ["mpirun", "--oversubscribe"]
        for rank in range(ranks):
            pin = ["taskset", "-c", str(rank)] if ranks <= 2 else []
            command += [":"] if rank else []
            command += ["-n", "1", *pin, f"{folder}/plumb-train", *layout, *TRAIN, "--steps", str(steps), "--json",
                        "--log", log, "--profile-out", profile]
        run(command, env={**os.environ, **MPI}, cwd=scratch)
        links = HOP if ranks <= 2 else ["--cluster", box]
        return json.loads(run([f"{folder}/plumb", "sim", *layout, "--tokens", "256", "--dtype", "fp32", "--profile", profile,
                               *links, "--against", log, "--json"]))


def discordant(rows, measured, slack):
    """Pairs of layouts that `measured` orders otherwise than the prediction, both by more than the slack."""
    pairs = wrong = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if a["microbatches"] != b["microbatches"]:
                continue
            pairs += 1
            apart = a[measured] / b[measured] - 1
            expected = a["predicted"] / b["predicted"] - 1
            if apart * expected < 0 and min(abs(apart), abs(expected)) > slack:
                wrong += 1
    return wrong, pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    print("| ranks | layout | predicted ms | undisturbed | shortest step | middle step | load |")
    print("|---|---|---|---|---|---|---|")
    for ranks, flags in layouts():
        if options.only not in f"P{ranks} {flags}":
            continue
        load = os.getloadavg()[0]
        against = measure(options.bin, ranks, flags, options.steps)
        predicted = against["predicted_step_us"]
        row = {"ranks": ranks, "flags": flags, "microbatches": flags.split()[3], "load": load, "predicted": predicted,
               "undisturbed": against["undisturbed_step_us"], "least": against["least_step_us"],
               "middle": against["measured_step_us"]}
        rows.append(row)
        apart = " | ".join(f"{100 * (row[name] / predicted - 1):+.1f} %" for name in ("undisturbed", "least", "middle"))
        print(f"| {ranks} | {flags.replace('--', '')} | {predicted / 1000:.1f} | {apart} | {load:.1f} |", flush=True)
    two = [row for row in rows if row["ranks"] == 2]
    for name in ("undisturbed", "least"):
        wrong, pairs = discordant(two, name, 0.01)
        print(f"order by {name}: {wrong} of {pairs} pairs of layouts with as many microbatches the other way round by more "
              "than 1 %")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
