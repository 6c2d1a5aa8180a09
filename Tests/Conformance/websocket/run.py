#!/usr/bin/env python3
"""Runs Autobahn's suite against libblip's WebSocket layer, as server and as client, through the echo in Echo/.

    run.py [--quick] [--cases 1.*,6.4.*] [--role server|client] [--build FOLDER] [--results FOLDER]

Every case but those on compression (12.*, 13.*) has to be OK and closed as the suite wants it. A case whose verdict is
another one that stands in EXPECTED, with its reason, passes too. --quick takes groups 1 to 7.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
QUICK = ",".join(f"{group}.*" for group in range(1, 8))

# Verdicts (behaviour, closing) besides ("OK", "OK") that are right, by case; docs/conformance.md says why.
EXPECTED = {
    "6.4.3": {("NON-STRICT", "OK")},
    "6.4.4": {("NON-STRICT", "OK")},
    "7.1.6": {("INFORMATIONAL", "INFORMATIONAL")},
    "7.13.1": {("INFORMATIONAL", "INFORMATIONAL")},
    "7.13.2": {("INFORMATIONAL", "INFORMATIONAL")},
}


def build(folder):
    command = [os.environ.get("SWIFT", "swift"), "build", "-c", "release", "-j", "2"]
    command += ["--package-path", HERE / "Echo", "--scratch-path", folder / "conformance-echo"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"the echo does not build:\n{done.stdout[-4000:]}")
    return folder / "conformance-echo" / "release" / "Echo"


def install(folder):
    python = os.environ.get("PYTHON", sys.executable)
    subprocess.run([python, HERE / "install.py", folder / "autobahn"], check=True)
    return folder / "autobahn" / "bin" / "python"


def first_line(process, seconds=30):
    """The first line that a process prints."""
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline().strip() if readable else ""
    if not line:
        stop(process)
        sys.exit(f"{process.args[0]} has not started")
    return line


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_role(role, echo, python, cases, results, seconds):
    """What the suite says of the echo in one role; None if it got nowhere."""
    report = results / f"websocket-{role}.json"
    report.unlink(missing_ok=True)
    fuzz = [python, HERE / "fuzz.py", role]
    if role == "server":
        tested = subprocess.Popen([echo, "server"], stdout=subprocess.PIPE, text=True)
        url = first_line(tested)
        suite = subprocess.Popen([*fuzz, url, cases, report])
    else:
        suite = subprocess.Popen([*fuzz, cases, report], stdout=subprocess.PIPE, text=True)
        url = first_line(suite).split()[-1]
        tested = subprocess.Popen([echo, "client", url])
    problems = []
    try:
        suite.wait(seconds)
        if role == "client" and tested.wait(10):
            problems.append(f"the client ended with status {tested.returncode}")
        if role == "server" and tested.poll() is not None:
            problems.append(f"the server ended with status {tested.returncode}")
    except subprocess.TimeoutExpired:
        problems.append(f"time is up after {seconds} s")
    finally:
        stop(suite)
        stop(tested)
    return (json.loads(report.read_text()) if report.exists() else {"cases": {}, "missing": [cases]}), problems


def judge(role, outcome, problems):
    """Prints what is not as it must be; returns passed, failed."""
    passed = failed = 0
    verdicts = {}
    for name, case in outcome["cases"].items():
        verdict = (case["behavior"], case["close"])
        verdicts.setdefault(verdict, []).append(name)
        if verdict == ("OK", "OK") or verdict in EXPECTED.get(name, ()):
            passed += 1
            continue
        failed += 1
        print(f"{role} {name}: {case['behavior']}, closing {case['close']}: {case['text']} {case['closeText']}")
        for error in case["errors"]:
            print(error)
    for name in outcome["missing"]:
        problems.append(f"case {name} did not run")
    for problem in problems:
        failed += 1
        print(f"{role}: {problem}")
    for (behaviour, closing), names in sorted(verdicts.items()):
        some = "" if behaviour == closing == "OK" else ": " + " ".join(names[:20])
        print(f"  {role}: {len(names):4} {behaviour}, closing {closing}{some}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", default=None)
    parser.add_argument("--role", choices=["server", "client"])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=int, default=1200, help="the most for one role (default 1200)")
    options = parser.parse_args()
    folder = options.build.resolve()
    results = (options.results or folder / "results").resolve()
    results.mkdir(parents=True, exist_ok=True)
    echo, python = build(folder), install(folder)
    total = [0, 0]
    for role in [options.role] if options.role else ["server", "client"]:
        start = time.monotonic()
        cases = options.cases or (QUICK if options.quick else "*")
        outcome, problems = run_role(role, echo, python, cases, results, options.seconds)
        passed, failed = judge(role, outcome, problems)
        print(f"  {role}: {time.monotonic() - start:.0f} s", flush=True)
        total[0] += passed
        total[1] += failed
    print(f"websocket: {total[0]} passed, {total[1]} failed")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
