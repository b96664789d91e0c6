"""Runs one golden command-line case: commands, the exit status each must have, and what it must print.

    python3 run_case.py --bin BUILD/bin --source CHECKOUT CASE

A case file is read line by line:

    # comment                       blank lines mean nothing
    needs nvrtc                     skip (exit 77) where it is missing: nvrtc
    file NAME                       writes the indented lines that follow (four spaces taken off) to NAME
        text
    $ command arg 'arg two' > FILE  runs without a shell in an empty folder made for the case; `> FILE` keeps stdout there
    exit N                          the status it must have; 0 when not stated
    | text                          the lines of its stdout, in order and all of them
    ! text                          the lines of its stderr, likewise
    silent stdout|stderr            it must print nothing there

In `|` and `!` lines `...` stands for any text within the line, and a line of only `...` for any number of lines. Without
any such line the stream is not looked at. `${SOURCE}` and `${BIN}` are replaced in commands and expectations. Commands see
no GPU, so that a case says the same everywhere.
"""
import argparse
import dataclasses
import glob
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SKIPPED = 77
TIMEOUT_S = 240


class BadCase(Exception):
    """The case file itself is wrong."""


@dataclasses.dataclass
class Command:
    line: int
    words: list
    stdout_file: str = ""
    status: int = 0
    stdout: list = dataclasses.field(default_factory=list)
    stderr: list = dataclasses.field(default_factory=list)
    silent: set = dataclasses.field(default_factory=set)


def parse(text, variables):
    """The case as a list of steps: Command, or (file name, content); and what it needs."""

    def expand(value):
        return re.sub(r"\$\{(\w+)\}", lambda match: variables[match.group(1)], value)

    steps, needs, open_file = [], [], None
    for number, raw in enumerate(text.splitlines(), 1):
        if open_file is not None and (raw.startswith("    ") or not raw.strip()):
            open_file.append(raw[4:])
            continue
        open_file = None
        line = raw.rstrip()
        word, _, rest = line.partition(" ")
        if not line or line.startswith("#"):
            continue
        if word == "needs":
            needs.append(rest)
        elif word == "file":
            open_file = []
            steps.append((rest, open_file))
        elif word == "$":
            words = shlex.split(expand(rest))
            command = Command(number, words)
            if len(words) > 2 and words[-2] == ">":
                command.words, command.stdout_file = words[:-2], words[-1]
            steps.append(command)
        elif not steps or not isinstance(steps[-1], Command):
            raise BadCase(f"line {number}: '{line}' belongs to no command")
        elif word == "exit":
            steps[-1].status = int(rest)
        elif word == "|":
            steps[-1].stdout.append(expand(rest))
        elif word == "!":
            steps[-1].stderr.append(expand(rest))
        elif word == "silent" and rest in ("stdout", "stderr"):
            steps[-1].silent.add(rest)
        else:
            raise BadCase(f"line {number}: '{line}' is not understood")
    return steps, needs


def pattern_of(expected):
    """A regular expression for lines in which `...` is a wildcard."""
    parts = []
    for line in expected:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*")
        else:
            parts.append("[^\n]*".join(re.escape(piece) for piece in line.split("...")) + r"[ \t]*\n")
    return re.compile("".join(parts))


def matches(expected, actual):
    if actual and not actual.endswith("\n"):
        actual += "\n"
    return pattern_of(expected).fullmatch(actual) is not None


def indent(text):
    return "".join(f"    {line}\n" for line in text.splitlines()) or "    (nothing)\n"


def complaints(command, done):
    """What is wrong with how a command ended, as sentences."""
    if done.returncode != command.status:
        yield f"exit status {done.returncode}, expected {command.status}\n"
    for name, expected, actual in (("stdout", command.stdout, done.stdout), ("stderr", command.stderr, done.stderr)):
        if name in command.silent and actual:
            yield f"{name} should be empty\n"
        if expected and not matches(expected, actual):
            yield f"{name} is not as expected:\n" + indent("\n".join(expected))


def environment(binaries, home):
    kept = {name: value for name, value in os.environ.items()
            if name in ("CUDA_HOME", "ADAMK_CUDA_HOME", "ADAMK_IGNORE_TOOLKIT", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
    path = f"{binaries}:/usr/local/bin:/usr/bin:/bin"
    return {**kept, "PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "COLUMNS": "120", "CUDA_VISIBLE_DEVICES": ""}


def nvrtc_present(source):
    homes = [str(source / "build" / "cuda")]
    if "ADAMK_IGNORE_TOOLKIT" not in os.environ:
        homes += [os.environ.get("ADAMK_CUDA_HOME", ""), os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    return any(glob.glob(f"{home}/lib*/libnvrtc.so.13") for home in homes if home)


def run_case(path, binaries, source):
    steps, needs = parse(path.read_text(), {"SOURCE": str(source), "BIN": str(binaries)})
    for need in needs:
        if need != "nvrtc":
            raise BadCase(f"needs '{need}': only nvrtc is known")
        if not nvrtc_present(source):
            print(f"skipped: {path.name} needs NVRTC; run scripts/setup")
            return SKIPPED
    with tempfile.TemporaryDirectory(prefix="adamk-cli-") as folder:
        for step in steps:
            if not isinstance(step, Command):
                (pathlib.Path(folder) / step[0]).write_text("\n".join(step[1]).rstrip("\n") + "\n")
                continue
            try:
                done = subprocess.run(step.words, cwd=folder, env=environment(binaries, folder), text=True, errors="replace",
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S)
            except FileNotFoundError:
                print(f"{path}:{step.line}: no program '{step.words[0]}'")
                return 1
            except subprocess.TimeoutExpired:
                print(f"{path}:{step.line}: still running after {TIMEOUT_S} s: {shlex.join(step.words)}")
                return 1
            wrong = list(complaints(step, done))
            if wrong:
                print(f"{path}:{step.line}: $ {shlex.join(step.words)}")
                print("".join(wrong) + "stdout was:\n" + indent(done.stdout) + "stderr was:\n" + indent(done.stderr), end="")
                return 1
            if step.stdout_file:
                (pathlib.Path(folder) / step.stdout_file).write_text(done.stdout)
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("case", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        return run_case(arguments.case, arguments.bin.resolve(), arguments.source.resolve())
    except BadCase as wrong:
        print(f"{arguments.case}: {wrong}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
