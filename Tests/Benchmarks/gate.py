#!/usr/bin/env python3
"""The part of the suite that does not depend on the machine's speed: fails if a request has come to cost more.

Counts instructions, by callgrind, and allocations, locks and system calls, by an interposed library, of an echo server
for requests of 64 bytes: 256 in flight, and one. Figures are compared with gate.json. The client sends all requests of
a window in one call and the next ones when all are answered, so that the server does the same in each run. Two runs of
different length are subtracted from each other: starting and connecting do not count.
"""

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from machine import HERE, Machine

TOLERANCE = 0.03
WINDOWS = {"window_256": 256, "window_1": 1}
CALLS = ("allocations", "bytes", "locks", "receives", "sends", "waits")
BASELINE = HERE / "gate.json"


def library_for_valgrind(machine):
    """A copy with symbols and without debug information, which valgrind may be too old to read."""
    folder = machine.out / "symbols"
    folder.mkdir(parents=True, exist_ok=True)
    library = machine.build.parent / ".build/release/libBLIPShared.so"
    if not library.exists():
        library = machine.build / "lib/libblip.so.1"
    subprocess.run(
        ["objcopy", "--strip-debug", "--remove-section", ".gnu_debuglink", library, folder / "libblip.so.1"], check=True
    )
    return folder


def ask(machine, server, window, requests):
    machine.run(machine.program("speed_of_light"), "-l", "-w", window, "-n", requests, "-p", server.port)


def instructions(machine, window, requests, folder, keep=None):
    file = Path(folder) / "callgrind.out"
    wrapper = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={file}"]
    environment = {"LD_LIBRARY_PATH": str(library_for_valgrind(machine))}
    with machine.server(wrapper=wrapper, environment=environment) as server:
        ask(machine, server, window, requests)
    if keep:
        shutil.copy(file, keep)
    with open(file, encoding="utf-8", errors="replace") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(("summary:", "totals:")))


def calls(machine, window, requests, folder):
    """What so many more requests cost a server that has seen as many before, by kind of call."""
    file = Path(folder) / "calls"
    environment = {"LD_PRELOAD": machine.program("calls.so"), "CALL_COUNTS": str(file)}

    def read():
        return struct.unpack(f"{len(CALLS)}Q", file.read_bytes())

    with machine.server(environment=environment) as server:
        ask(machine, server, window, requests)
        seen = [read()]
        for count in (requests, 3 * requests):
            ask(machine, server, window, count)
            seen.append(read())
    # Both connections cost the same; the second one had twice as many requests more.
    return {name: (c - b - (b - a)) / (2 * requests) for name, a, b, c in zip(CALLS, *seen)}


def lengths(window):
    """Requests of a short and of a long run."""
    return (40 * window, 200 * window) if window > 1 else (2000, 10000)


def count_calls(machine):
    with tempfile.TemporaryDirectory() as folder:
        return {name: calls(machine, window, lengths(window)[1], folder) for name, window in WINDOWS.items()}


def count_instructions(machine):
    """Instructions per request; the profile of the long run stays in the build folder."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, window in WINDOWS.items():
            few, many = lengths(window)
            cost = instructions(machine, window, many, folder, machine.out / f"callgrind.{name}")
            found[name] = (cost - instructions(machine, window, few, folder)) / (many - few)
    return found


def measure(machine):
    counted = count_calls(machine)
    return {
        name: {"instructions": round(cost, 1), **{kind: round(value, 4) for kind, value in counted[name].items()}}
        for name, cost in count_instructions(machine).items()
    }


def judge(result, baseline):
    """Sentences about what has become worse."""
    found = []
    for name, now in result.items():
        before = baseline.get(name, {})
        if now["instructions"] > before.get("instructions", 0) * (1 + TOLERANCE):
            found.append(f"{name}: {now['instructions']} instructions a request, {before.get('instructions')} before")
        if now["allocations"] >= 0.001:
            found.append(f"{name}: {now['allocations']} allocations a request, none are allowed")
        for kind in ("locks", "receives", "sends", "waits"):
            if now[kind] > before.get(kind, 0) * 1.2 + 0.01:
                found.append(f"{name}: {now[kind]} {kind} a request, {before.get(kind)} before")
        if now["instructions"] < before.get("instructions", 0) * (1 - TOLERANCE):
            print(f"{name}: better than recorded; make gate-record holds it there", file=sys.stderr)
    return found


def read_profile(file):
    """Calls and own instructions of each function, from a file of callgrind."""
    names, calls_of, cost_of = {}, Counter(), Counter()
    function = called = None
    inclusive = False
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
            if match:
                kind, number, name = match.groups()
                if name:
                    names[number] = name.strip()
                if kind == "fn":
                    function = number
                else:
                    called = number
            elif line.startswith("calls="):
                calls_of[called] += int(line[6:].split()[0])
                inclusive = True
            elif line[:1].isdigit() or line[:1] in "+-*":
                if not inclusive:
                    cost_of[function] += int(line.split()[1])
                inclusive = False
    return [(names[number], calls_of[number], cost) for number, cost in cost_of.most_common() if number in names]


def demangled(names):
    if shutil.which("swift") is None:
        return names
    done = subprocess.run(
        ["swift", "demangle", "--simplified"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split("\n")


def print_profile(file, requests, lines=40):
    """The functions that the server's instructions are in, and how often each is called, by request."""
    profile = read_profile(file)[:lines]
    print("instructions    calls  of a request")
    for (_, called, cost), name in zip(profile, demangled([name for name, _, _ in profile])):
        print(f"{cost / requests:12.1f} {called / requests:8.2f}  {name}")


def profile_table(machine, lines=20):
    """The same as Markdown, for 256 requests in flight."""
    cost = count_instructions(machine)
    profile = read_profile(machine.out / "callgrind.window_256")[:lines]
    requests = lengths(WINDOWS["window_256"])[1]
    rows = [
        f"{cost['window_256']:,.0f} instructions of the server for an echo of 64 bytes with 256 in flight, "
        f"{cost['window_1']:,.0f} with one. With 256:",
        "",
        "| function | instructions per request | calls per request |",
        "|---|---|---|",
    ]
    for (_, called, own), name in zip(profile, demangled([name for name, _, _ in profile])):
        name = "ISA-L's checksum" if name.startswith("0x") else f"`{name}`"
        rows.append(f"| {name} | {own / requests:.0f} | {called / requests:.1f} |")
    return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=HERE.parent.parent / "build", help="where the library was built")
    parser.add_argument("--record", action="store_true", help="make the present figures the baseline")
    parser.add_argument("--profile", action="store_true", help="print where the instructions of a long run went, too")
    arguments = parser.parse_args()
    for tool in ("valgrind", "objcopy", "taskset"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: apt-get install valgrind binutils util-linux")
    machine = Machine(arguments.build)
    result = measure(machine)
    print(json.dumps(result, indent=2))
    if arguments.profile:
        for name in WINDOWS:
            print(f"\n{name}")
            print_profile(machine.out / f"callgrind.{name}", lengths(WINDOWS[name])[1])
    if arguments.record:
        BASELINE.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0
    if not BASELINE.exists():
        sys.exit("no baseline is recorded: make gate-record")
    found = judge(result, json.loads(BASELINE.read_text(encoding="utf-8")))
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
