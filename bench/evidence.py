#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws overhead against unit time: measured points over simulated curves, and prints the tables of the evidence page.

usage: evidence.py PLUMB EVIDENCE.jsonl OUT

The curves come from `plumb sim --compare-cache` with the flags of the measured runs, so points and curves differ in
nothing but being measured or simulated. Standard library only.
"""
import json
import math
import re
import subprocess
import sys

POLICIES = ["naive", "relay", "direct", "cached"]
COLOURS = {"naive": "#b3261e", "relay": "#b26a00", "direct": "#3b6fb6", "cached": "#1b7f4b"}
TITLES = {
    "aligned-p8v4": "aligned, P=8 V=4 M=32",
    "aligned-p8v4-n16": "aligned, P=8 V=4 M=32, groups of 16",
    "k3-p8v4": "K3, P=8 V=4 M=32",
    "k3-p8v4-n16": "K3, P=8 V=4 M=32, groups of 16",
    "k3-p8v2": "K3, P=8 V=2 M=32",
    "k3-p8v1": "K3, P=8 V=1 M=32, 1F1B",
}
CURVE = re.compile(r"^curve (\S+) u=(\S+) (\S+) F=(\d+)(?: without (\S+))?$")
SHARES = [0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4]


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines if line.strip()]


def without(flags, *names):
    words = flags.split()
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word in names:
            skip = 1
        else:
            kept.append(word)
    return kept


def simulated(plumb, flags, share):
    """Overhead over standard per policy, of the layout of these flags."""
    words = without(flags, "--cache", "--unit-us", "--steps", "--impair", "--action-us", "--unit-bytes", "--hop-us")
    command = [plumb, "sim", *words, "--action-us", "F=1000,I=1000,W=1000", "--unit-us", str(1000 * share), "--hop-us",
               "0", "--compare-cache", "--json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["policies"]
    return {row["cache"]: row["overhead_over_standard"] for row in rows}


def percent(value):
    return "%+.2f %%" % (100 * value)


class Picture:
    """A log-log chart of overhead in percent; below LOW everything is drawn at the floor."""
    WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 620, 400, 64, 40, 16, 52
    LOW, HIGH = 0.01, 1000.0

    def __init__(self, title):
        self.parts = []
        self.title = title

    def x(self, share):
        span = math.log(SHARES[-1] / SHARES[0])
        return self.LEFT + (self.WIDTH - self.LEFT - self.RIGHT) * math.log(share / SHARES[0]) / span

    def y(self, overhead):
        value = min(max(100 * overhead, self.LOW), self.HIGH)
        return self.HEIGHT - self.BOTTOM - (self.HEIGHT - self.TOP - self.BOTTOM) * (
            math.log(value / self.LOW) / math.log(self.HIGH / self.LOW))

    def text(self, x, y, words, anchor="middle", extra=""):
        self.parts.append('<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>' % (x, y, anchor, extra, words))

    def axes(self):
        right, bottom = self.WIDTH - self.RIGHT, self.HEIGHT - self.BOTTOM
        for power in range(-2, 4):
            y = self.y(10.0 ** power / 100)
            self.parts.append('<path d="M%d %.1fH%d" stroke="#ddd"/>' % (self.LEFT, y, right))
            self.text(self.LEFT - 6, y + 4, "%g %%" % 10.0 ** power, "end")
        for share in (0.02, 0.05, 0.1, 0.2, 0.4):
            x = self.x(share)
            self.parts.append('<path d="M%.1f %dV%d" stroke="#eee"/>' % (x, self.TOP, bottom))
            self.text(x, bottom + 18, "%g" % share)
        self.text((self.LEFT + right) / 2, self.HEIGHT - 12, "time of one unit on a link / forward of a chunk")
        self.text(self.LEFT, 20, self.title + ": overhead over a standard residual", "start", 'font-weight="bold"')

    def curve(self, policy, points):
        path = " ".join("%s%.1f %.1f" % ("L" if i else "M", self.x(u), self.y(v)) for i, (u, v) in enumerate(points))
        self.parts.append('<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>' % (path, COLOURS[policy]))

    def point(self, policy, share, overhead):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s u=%g: %s</title></circle>' % (
            self.x(share), self.y(overhead), COLOURS[policy], policy, share, percent(overhead)))

    def legend(self):
        for i, policy in enumerate(POLICIES):
            x, y = self.LEFT + 12 + 120 * i, self.TOP - 6
            self.parts.append('<path d="M%d %dh20" stroke="%s" stroke-width="2"/><circle cx="%d" cy="%d" r="4" fill="%s"/>'
                              % (x, y, COLOURS[policy], x + 10, y, COLOURS[policy]))
            self.text(x + 26, y + 4, policy, "start")

    def svg(self):
        drawn, self.parts = self.parts, []
        self.axes()
        self.parts += drawn
        self.legend()
        return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">'
                '<rect width="100%%" height="100%%" fill="white"/>%s</svg>\n' % (self.WIDTH, self.HEIGHT,
                                                                               "".join(self.parts)))


def curve_tables(plumb, runs, out):
    layouts = {}
    for run in runs:
        found = CURVE.match(run["name"])
        if found and not found.group(5):
            layouts.setdefault(found.group(1), []).append((float(found.group(2)), found.group(3), run))
    for layout, points in layouts.items():
        picture = Picture(TITLES[layout])
        by_share = {share: simulated(plumb, points[0][2]["flags"], share) for share in SHARES}
        for policy in POLICIES:
            picture.curve(policy, [(share, by_share[share][policy]) for share in SHARES])
        print("\n%s (measured / simulated)\n\n| u | %s |\n|---|%s" % (TITLES[layout], " | ".join(POLICIES),
                                                                    "---|" * len(POLICIES)))
        for share in sorted({share for share, _, _ in points}):
            cells = []
            for policy in POLICIES:
                run = next((r for u, p, r in points if u == share and p == policy), None)
                if run is None:
                    cells.append("-")
                    continue
                result = run["result"]
                picture.point(policy, share, result["overhead_over_standard"])
                cells.append("%s / %s" % (percent(result["overhead_over_standard"]),
                                          percent(result["predicted_overhead_over_standard"])))
            print("| %g | %s |" % (share, " | ".join(cells)))
        with open("%s/overhead-%s.svg" % (out, layout), "w") as file:
            file.write(picture.svg())


def impaired_table(runs):
    def both(run):
        return "%s / %s" % (percent(run["result"]["overhead_over_standard"]),
                            percent(run["result"]["predicted_overhead_over_standard"]))

    def point(run):
        found = CURVE.match(run["name"])
        return found.group(1), found.group(2), found.group(3)

    curves = [run for run in runs if CURVE.match(run["name"])]
    whole = {point(run): run for run in curves if run["result"]["impair"] == "none"}
    lines = ["| %s | %s | %s | %s | %s | %s |" % (TITLES[point(run)[0]], *point(run)[1:], run["result"]["impair"],
                                                both(whole[point(run)]) if point(run) in whole else "-", both(run))
             for run in curves if run["result"]["impair"] != "none"]
    if lines:
        print("\nOverhead over a standard residual on the same links, measured / simulated\n\n"
              "| layout | u | policy | impaired by | whole | impaired |\n|---|---|---|---|---|---|")
        print("\n".join(sorted(lines)))


def row_table(runs):
    rows = [run for run in runs if run["name"].startswith("row ")]
    if not rows:
        return
    print("\nRehearsed against simulated step time\n\n| row | measured ms | spread ms | predicted ms | difference | cores "
          "| load |\n|---|---|---|---|---|---|---|")
    for run in rows:
        result = run["result"]
        print("| %s | %.2f | %.2f | %.2f | %s | %.2f | %s |" % (
            run["name"][4:], result["step_us"] / 1000, result["spread_us"] / 1000, result["predicted_step_us"] / 1000,
            percent(result["difference"]), result["cores_used"], run["load"]))
    worst = max(rows, key=lambda run: abs(run["result"]["difference"]))
    print("\nworst of %d rows: %s, %s" % (len(rows), worst["name"][4:], percent(worst["result"]["difference"])))


def checks(runs):
    wrong = [run["name"] for run in runs
             if len(set(run["result"]["bytes_per_step"].values())) != 1 or run["result"]["mismatches"]]
    print("\n%d runs, %d messages; runs with a mismatch or bytes that differ: %s" % (
        len(runs), sum(run["result"]["messages"] for run in runs), ", ".join(wrong) or "none"))


def main():
    plumb, log, out = sys.argv[1:4]
    runs = read(log)
    row_table(runs)
    curve_tables(plumb, runs, out)
    impaired_table(runs)
    checks(runs)


main()
