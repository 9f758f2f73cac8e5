#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of compiled GPU kernels: rows are accessed 16 bytes at a time where they may be and one element
at a time where they may not, and no kernel touches local memory, where registers would be spilled.

    kernels/cuda/check_sass.py cuobjdump sm_90 kernels_bf16.o ...

Prints one line per kernel; exits with 1 if one is not as said."""
import collections
import os
import pathlib
import re
import subprocess
import sys

from resources import demangled

# What a kernel does with rows. Kernels of single numbers have none; a kernel in neither list is refused.
ROWS = {"AddKernel": "LS", "DotsKernel": "L", "MixKernel": "LS", "MixtureKernel": "LS", "ResidentKernel": "LS",
        "TensorDotsKernel": "L", "TensorKernel": "LS", "UpdateKernel": "LS"}  # fmt: skip
NO_ROWS = {"ReaderCoefficients", "ReduceKernel", "TokenCoefficients"}
# Global memory loaded, stored, copied to shared memory; local memory.
ACCESS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?((?:LDG|STG|LDGSTS|LDL|STL)\b[.\w]*)")


def accesses(cuobjdump, architecture, path):
    """{mangled kernel: Counter of (mnemonic, bytes)}"""
    environment = dict(os.environ, PATH=f"{pathlib.Path(cuobjdump).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    text = subprocess.run([cuobjdump, "-sass", "-arch", architecture, path], capture_output=True, text=True, check=True,
                          env=environment).stdout  # fmt: skip
    found = {}
    for line in text.splitlines():
        if function := re.match(r"\s*Function : (\S+)", line):
            current = found.setdefault(function[1], collections.Counter())
        elif access := ACCESS.search(line):
            mnemonic, *parts = access[1].split(".")
            size = next((size for part, size in (("128", 16), ("64", 8), ("U16", 2), ("U8", 1)) if part in parts), 4)
            current[mnemonic, size] += 1
    return found


def mistakes(name, counts):
    kind = re.match(r"\w+", name)[0]
    if kind not in ROWS and kind not in NO_ROWS:
        yield "is not known to this script"
    if any(mnemonic in ("LDL", "STL") for mnemonic, _ in counts):
        yield "uses local memory"
    loads = counts["LDG", 16] + counts["LDGSTS", 16]
    widest = max((size for mnemonic, size in counts if mnemonic in ("LDG", "STG", "LDGSTS")), default=0)
    narrowest = min((size for mnemonic, size in counts if mnemonic in ("LDG", "STG", "LDGSTS")), default=4)
    if name.endswith("scalar>"):
        if widest > 4:
            yield f"accesses {widest} bytes of rows that may not be aligned"
    elif kind in ROWS:
        if loads == 0:
            yield "never loads 16 bytes"
        if "S" in ROWS[kind] and counts["STG", 16] == 0:
            yield "never stores 16 bytes"
        if narrowest < 4:
            yield f"accesses elements of {narrowest} bytes"


def main():
    cuobjdump, architecture, *objects = sys.argv[1:]
    failed = total = 0
    for path in objects:
        found = accesses(cuobjdump, architecture, path)
        for name, counts in sorted(zip(demangled(found), found.values())):
            total += 1
            wrong = list(mistakes(name, counts))
            failed += bool(wrong)
            listed = ", ".join(f"{count} {mnemonic} of {size} B" for (mnemonic, size), count in sorted(counts.items()))
            print(f"{name}: {listed}" + "".join(f"\n  FAILED: {each}" for each in wrong))
    print(f"{total} kernels of {architecture}, {failed} not as they should be")
    sys.exit(1 if failed or total == 0 else 0)


main()
