#!/usr/bin/env python3
"""Runs the C test programs, the checks of header and library and the examples; adds everything up.

    run_tests.py --build DIR --header blip.h --library libblip.so [--results c.xml] [--sanitize NAME | --valgrind]
        TEST...
"""

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import check_examples
import check_library

HERE = Path(__file__).parent


def run_program(program, arguments, results):
    """Runs one program and collects what its TAP says."""
    command = [str(program)]
    environment = dict(os.environ, LIBBLIP_PATH=str(arguments.library.resolve()))
    if arguments.sanitize:
        # Slots of handles are never given back, which is by design.
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
        environment.setdefault("TEST_TIME_SCALE", "4")
    if arguments.valgrind:
        command = ["valgrind", "-q", "--trace-children=no", "--child-silent-after-fork=yes", "--error-exitcode=99",
                   "--leak-check=full", "--errors-for-leak-kinds=definite,indirect",
                   "--show-leak-kinds=definite,indirect",
                   f"--suppressions={HERE.parents[1] / 'scripts' / 'memcheck-of-others.txt'}", *command, "-1"]
        environment.setdefault("TEST_TIME_SCALE", "20")
    print(f"# {program.name}", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    planned, seen, notes = None, 0, []
    for raw in process.stdout:
        line = raw.decode("utf-8", "replace").rstrip("\n")
        print(line, flush=True)
        match = re.match(r"(ok|not ok) \d+ - (\w+)( # SKIP)?(?: \(([\d.]+) s\))?", line)
        if match:
            seen += 1
            outcome = "skipped" if match[3] else "passed" if match[1] == "ok" else "failed"
            results.append((program.name, match[2], outcome, float(match[4] or 0), "\n".join(notes)))
            notes = []
        elif line.startswith("1.."):
            planned = int(line[3:])
        else:
            notes.append(line)
    status = process.wait()
    if planned is None or seen != planned:
        results.append((program.name, "program", "failed", 0, f"planned {planned}, ran {seen}, exit status {status}"))
        print(f"not ok - {program.name}: planned {planned}, ran {seen}, exit status {status}", flush=True)
    elif status != 0 and not any(row[0] == program.name and row[2] == "failed" for row in results):
        results.append((program.name, "program", "failed", 0, f"exit status {status}"))
        print(f"not ok - {program.name}: exit status {status}", flush=True)


def run_checks(name, checks, results):
    print(f"# {name}", flush=True)
    for check, function in checks:
        start = time.monotonic()
        findings = function()
        seconds = time.monotonic() - start
        for finding in findings:
            print(f"# {finding}")
        print(f"{'not ok' if findings else 'ok'} - {check} ({seconds:.2f} s)", flush=True)
        results.append((name, check, "failed" if findings else "passed", seconds, "\n".join(findings)))


def write_results(path, results):
    suite = ElementTree.Element("testsuite", name="c", tests=str(len(results)))
    for program, test, outcome, seconds, text in results:
        case = ElementTree.SubElement(suite, "testcase", classname=program, name=test, time=f"{seconds:.3f}")
        if outcome == "failed":
            clean = re.sub(r"[^\t\n\x20-\x7e]", "?", text)
            ElementTree.SubElement(case, "failure", message="see the text").text = clean
        elif outcome == "skipped":
            ElementTree.SubElement(case, "skipped")
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--sanitize", default="")
    parser.add_argument("--valgrind", action="store_true")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    results = []
    for test in arguments.tests:
        run_program(arguments.build / test, arguments, results)
    if not arguments.sanitize and not arguments.valgrind:
        run_checks("header and library", check_library.checks(arguments, HERE), results)
        run_checks("examples", check_examples.checks(arguments), results)
    if arguments.results:
        write_results(arguments.results, results)
    failed = [row for row in results if row[2] == "failed"]
    skipped = sum(row[2] == "skipped" for row in results)
    for program, test, *_ in failed:
        print(f"# failed: {program}: {test}")
    print(f"{len(results) - len(failed) - skipped} passed, {len(failed)} failed"
          + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
