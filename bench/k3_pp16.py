#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/k3-pp16.svg and makes the tables of docs/k3-pp16.md.

usage: k3_pp16.py PLUMB OUT.svg [PAGE.md]

Prints the tables; with a page, only the lines that it lacks, which end the script with 1. Every point of the picture is one
`plumb sim --compare-cache --cluster FILE`, FILE being the preset h100 with another rate between the 64 devices of
a stage and those of the next. Standard library only.
"""
import json
import math
import subprocess
import sys
import tempfile

POLICIES = ["naive", "relay", "direct", "cached"]
COLOURS = {"naive": "#b3261e", "relay": "#b26a00", "direct": "#3b6fb6", "cached": "#1b7f4b"}
RATES = [100, 50, 25, 12.5, 6.25, 3.125, 1.5625]  # GB/s per device and direction
STAGES = [1, 2]  # of the picture
ALL_STAGES = [1, 2, 4, 6]
CLUSTER = """name: h100
gpu: {{name: H100 SXM, bf16_tflops_dense: 989, hbm_GBps: 3350, mem_GiB: 80, num_sms: 132}}
tiers:
  - {{name: nvlink, span_gpus: 8, GBps_per_dir: 450, efficiency: 0.82, latency_us: 3.4}}
  - {{name: infiniband, span_gpus: 64, GBps_per_dir: 50, efficiency: 0.9, latency_us: 14}}
  - {{name: between-stages, GBps_per_dir: {rate}, efficiency: 0.9, latency_us: 14}}
p2p: {{launch_us: 8.4}}
"""
DEPTH = "--model kimi-k3 --pp 16 --json".split()
STEP = DEPTH + "--microbatches 64 --tp 8 --dp 8 --ep 64".split()
GIB = 2.0 ** 30
WIDTH, HEIGHT, TOP, BOTTOM, LEFT, RIGHT, GAP = 860, 380, 56, 52, 60, 20, 56
LOW, HIGH = 0.01, 1000.0  # percent


def ask(*command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     text=True).stdout)


def rows(plumb, stages, cluster):
    """The rows of one comparison by policy, `standard` among them."""
    answer = ask(plumb, "sim", *STEP, "--compare-cache", "--vp", str(stages), "--cluster", cluster)
    return {row["cache"]: row for row in answer["policies"]}


def overheads(plumb, stages, rate):
    """Overhead per policy, as a fraction."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CLUSTER.format(rate=rate))
        file.flush()
        return {policy: row["overhead_over_standard"] for policy, row in rows(plumb, stages, file.name).items()}


def line(*cells):
    return "| %s |" % " | ".join(str(cell) for cell in cells)


def percent(fraction):
    return "%+.2f %%" % (100 * fraction)


def volume_table(plumb):
    lines = [line("V", "standard", "naive", "relay, cached, direct", "naive / standard", "least / standard",
                  "naive GiB", "least GiB"), "|---" * 8 + "|"]
    for stages in ALL_STAGES:
        answer = ask(plumb, "volume", *DEPTH, "--vp", str(stages))
        standard = 16 * stages - 1  # one hidden state per hop, and no two chunks that follow each other share a rank
        naive, least = answer["naive"]["units"], answer["formula"]["exact_minimum_units"]
        assert all(answer[policy]["units"] == least for policy in ("relay", "cached", "direct"))
        unit = answer["forward_bytes_per_unit"]
        lines.append(line(stages, standard, naive, least, "%.2f" % (naive / standard), "%.2f" % (least / standard),
                          "%.2f" % (naive * unit / GIB), "%.2f" % (least * unit / GIB)))
    return lines


def time_table(plumb):
    lines = [line("V", "standard, s", "bubble", *POLICIES), "|---" * (3 + len(POLICIES)) + "|"]
    peaks = [line("V", *POLICIES), "|---" * (1 + len(POLICIES)) + "|"]
    for stages in ALL_STAGES:
        by_policy = rows(plumb, stages, "h100")
        standard = by_policy["standard"]
        lines.append(line(stages, "%.3f" % (standard["step_us"] * 1e-6), "%.1f %%" % (100 * standard["bubble_over_step"]),
                          *(percent(by_policy[policy]["overhead_over_standard"]) for policy in POLICIES)))
        peaks.append(line(stages, *("%d, %d: %.1f GiB" % (row["peak_resident_units"], row["peak_gradient_units"],
                                                          row["peak_bytes"] / GIB)
                                    for row in (by_policy[policy] for policy in POLICIES))))
    return lines + [""] + peaks


def design_table(plumb):
    answer = ask(plumb, "sim", *STEP, "--compare-residual", "all", "--vp", "2", "--cluster", "h100")
    lines = [line("design", "tensors", "step", "peak GiB"), "|---" * 4 + "|"]
    for row in answer["designs"]:
        assert row["traffic_equals_formula"]
        lines.append(line("`%s`" % row["residual"], "%d" % row["forward_tensors_per_microbatch"],
                          percent(row["overhead_over_standard"]), "%.1f" % (row["peak_bytes"] / GIB)))
    return lines


def rate_table(curves):
    lines = [line("V", "GB/s", *POLICIES), "|---" * (2 + len(POLICIES)) + "|"]
    for stages in STAGES:
        for rate in RATES:
            lines.append(line(stages, "%g" % rate, *(percent(curves[stages][rate][policy]) for policy in POLICIES)))
    return lines


def text(x, y, words, anchor="middle", extra=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>' % (x, y, anchor, extra, words)


def panel(left, width, title, curves):
    bottom = HEIGHT - BOTTOM

    def x(rate):  # slower links to the right
        return left + width * math.log(RATES[0] / rate) / math.log(RATES[0] / RATES[-1])

    def y(overhead):
        value = min(max(100 * overhead, LOW), HIGH)
        return bottom - (bottom - TOP) * math.log(value / LOW) / math.log(HIGH / LOW)

    parts = [text(left, TOP - 10, title, "start", ' font-weight="bold"')]
    for power in range(-2, 4):
        height = y(10.0 ** power / 100)
        parts.append('<path d="M%d %.1fh%d" stroke="#ddd"/>' % (left, height, width))
        parts.append(text(left - 6, height + 4, "%g %%" % 10.0 ** power, "end"))
    for rate in RATES:
        parts.append('<path d="M%.1f %dV%d" stroke="#eee"/>' % (x(rate), TOP, bottom))
        parts.append(text(x(rate), bottom + 18, "%.3g" % rate))
    parts.append(text(left + width / 2, HEIGHT - 12, "GB/s per device and direction between stages"))
    for policy in POLICIES:
        points = [(x(rate), y(curves[rate][policy])) for rate in RATES]
        path = " ".join("%s%.1f %.1f" % ("L" if i else "M", *point) for i, point in enumerate(points))
        dash = ' stroke-dasharray="6 4"' if policy == "relay" else ""  # where it lies on naive, both show
        parts.append('<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>' % (path, COLOURS[policy], dash))
        for rate, point in zip(RATES, points):
            parts.append('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s at %g GB/s: %s</title></circle>' % (
                *point, COLOURS[policy], policy, rate, percent(curves[rate][policy])))
    return "".join(parts)


def picture(curves):
    width = (WIDTH - LEFT - RIGHT - GAP * (len(STAGES) - 1)) // len(STAGES)
    parts = [text(LEFT, 20, "K3 at PP 16: overhead over a standard residual", "start",
                  ' font-weight="bold"')]
    for i, policy in enumerate(POLICIES):
        x = WIDTH - RIGHT - 84 * (len(POLICIES) - i)
        parts.append('<path d="M%d 16h20" stroke="%s" stroke-width="3"/>' % (x, COLOURS[policy]))
        parts.append(text(x + 26, 20, policy, "start"))
    for i, stages in enumerate(STAGES):
        title = "V = %d, %s" % (stages, "1F1B" if stages == 1 else "interleaved")
        parts.append(panel(LEFT + i * (width + GAP), width, title, curves[stages]))
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">'
            '<rect width="100%%" height="100%%" fill="white"/>%s</svg>\n' % (WIDTH, HEIGHT, "".join(parts)))


def main():
    plumb, out = sys.argv[1:3]
    curves = {stages: {rate: overheads(plumb, stages, rate) for rate in RATES} for stages in STAGES}
    with open(out, "w") as file:
        file.write(picture(curves))
    lines = volume_table(plumb) + [""] + time_table(plumb) + [""] + rate_table(curves) + [""] + design_table(plumb)
    if len(sys.argv) > 3:
        with open(sys.argv[3]) as page:
            shown = set(page.read().splitlines())
        lines = [each for each in lines if each not in shown and each]
    if lines:
        print("\n".join(lines))
    return 1 if lines and len(sys.argv) > 3 else 0


sys.exit(main())
