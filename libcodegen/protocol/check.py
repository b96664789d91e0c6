#!/usr/bin/env python3
"""Checks the protocol models of this folder with spin: each must verify, and each of its seeded defects must be refuted.

    check.py [--nightly] [MODEL...]

A model says in its header what is to be run, one line each:
    sizes: FLAGS            verified exhaustively; the first of them is what defects are seeded into
    nightly: FLAGS          verified with --nightly only
    defect: FLAGS  what     must end in a failed assertion or an invalid end state
Exit status: 0 all as it should be, 1 not, 77 spin or a C compiler is missing.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"^ *(sizes|nightly|defect): ((?:-D\S+ ?)+) *(.*?) *(?:\*/)?$", re.MULTILINE)
MEMORY_MB = 6000


def read_runs(model):
    """[(kind, flags, what)] in the order of the header."""
    return [(kind, flags.split(), what) for kind, flags, what in LINE.findall(model.read_text())]


def merge(flags, overrides):
    """Flags by name, the later ones win."""
    merged = {flag[2:].split("=")[0]: flag for flag in flags + overrides}
    return list(merged.values())


def explore(model, flags, optimise):
    """(verdict, detail): 'verified' with the number of states, 'refuted' with what failed, or 'broken' with why nothing is known."""
    with tempfile.TemporaryDirectory(prefix="adamk-spin-") as folder:
        spin = subprocess.run(["spin", "-a", *flags, str(model)], cwd=folder, capture_output=True, text=True)
        if spin.returncode != 0 or "rror" in spin.stdout:
            return "broken", spin.stdout + spin.stderr
        options = ["-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-DVECTORSZ=4096"]
        cache = ["ccache"] if shutil.which("ccache") else []
        for command in ([*cache, "gcc", optimise, "-w", *options, "-c", "pan.c"], ["gcc", "-o", "pan", "pan.o"]):
            cc = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if cc.returncode != 0:
                return "broken", cc.stderr
        out = subprocess.run(["./pan", "-m200000", "-w20"], cwd=folder, capture_output=True, text=True).stdout
    errors = re.search(r"errors: (\d+)", out)
    if errors is None:
        return "broken", out
    if int(errors[1]) > 0:
        why = re.search(r"^pan:\d+: (.*?)(?: \(at depth.*)?$", out, re.MULTILINE)
        found = why[1] if why else ""
        return ("refuted", found) if found.startswith(("assertion violated", "invalid end state")) else ("broken", out)
    if "Search not completed" in out or "max search depth too small" in out or "out of memory" in out:
        return "broken", "the search was cut short\n" + out
    # A process that can never end would make all assertions behind it empty; one with an end label waits for ever on purpose.
    for name, lines in re.findall(r"^unreached in proctype (\w+)\n((?:\t.*\n)*)", out, re.MULTILINE):
        if '"-end-"' in lines and not re.search(rf"proctype {name}\b[^}}]*?\bend\w*:", model.read_text(), re.DOTALL):
            return "broken", f"process {name} never ends"
    return "verified", re.search(r"(\d+) states, stored", out)[1] + " states"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nightly", action="store_true", help="the larger sizes as well")
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="default: every .pml file of this folder")
    arguments = parser.parse_args()
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"{tool} is not installed: the protocol models are not checked")
            return 77

    runs = []   # model, kind, flags, what, expected verdict
    for model in arguments.models or sorted(HERE.glob("*.pml")):
        model = model.resolve()
        found = read_runs(model)
        sizes = [flags for kind, flags, _ in found if kind == "sizes"]
        if not sizes or not any(kind == "defect" for kind, _, _ in found):
            print(f"{model.name}: its header names no sizes or no defects")
            return 1
        for kind, flags, what in found:
            if kind == "defect":
                runs.append((model, merge(sizes[0], flags), what + " [" + " ".join(flags) + "]", "refuted"))
            elif kind == "sizes" or arguments.nightly:
                runs.append((model, flags, " ".join(flags), "verified"))

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda run: explore(run[0], run[1], "-O2" if arguments.nightly and run[3] == "verified" else "-O0"), runs)
        for (model, _, what, expected), (verdict, detail) in zip(runs, results):
            right = verdict == expected
            failed += not right
            print(f"{'ok  ' if right else 'FAIL'} {model.stem:13} {verdict:9} {what}: {detail.strip() if right else detail}", flush=True)
    print(f"{len(runs)} runs, {failed} not as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
