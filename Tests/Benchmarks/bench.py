#!/usr/bin/env python3
"""Measures libblip beside what it is judged by: the least work that the protocol needs, and raw TCP.

Server and client are processes on a core each. Ours and the reference run in turn, so that a disturbance of the machine
falls on both; a ratio is taken in each round, and the median of the rounds counts. Results go to results.json and
results.md in the build folder's bench/.
"""

import argparse
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import gate
from machine import HERE, Machine, certificate, description

GIB = 1 << 30
LIGHT_BODY = 16000  # the most that speed_of_light can take
NOT_MEASURED = [
    "kernel TLS, which needs a kernel that has it",
]


class Suite:
    def __init__(self, machine, arguments):
        self.machine, self.quick, self.only = machine, arguments.quick, arguments.only
        self.rounds = arguments.rounds or (3 if self.quick else 5)
        self.seconds = 0.25 if self.quick else 0.8
        self.warm_up = 0.1 if self.quick else 0.3
        self.body = GIB >> 3 if self.quick else GIB
        self.allowance = 3 if self.quick else 25  # seconds of a case after which no further round begins
        self.rows, self.failures, self.tables = [], [], []

    # Running

    def client(self, server, *arguments, seconds=None, timeout=120):
        return self.machine.run(
            self.machine.program("echo_client"),
            "-j",
            "-s",
            seconds or self.seconds,
            "-m",
            self.warm_up,
            *arguments,
            server.url,
            timeout=timeout,
        )

    def stream(self, server, *arguments):
        return self.machine.run(self.machine.program("stream_client"), "-b", self.body, *arguments, server.url)

    def light(self, *arguments):
        return self.machine.reference("speed_of_light", "-s", self.seconds, "-m", self.warm_up, *arguments)

    def tcp(self, *arguments):
        return self.machine.reference("raw_tcp", "-s", self.seconds, "-m", self.warm_up, *arguments)

    def in_turn(self, rounds=None, /, **sides):
        """Runs each side once a round: lists of results by side."""
        results, began = {name: [] for name in sides}, time.monotonic()
        for turn in range(rounds or self.rounds):
            if turn > 1 and time.monotonic() - began > self.allowance:
                break
            for name, side in sides.items():
                results[name].append(measured(side))
        return results

    # Reporting

    def row(self, title, unit, values, goal="", met=None, reference=None, low_is_good=False, runs=None):
        """A line of the table. met is given the median, or where there is a reference the median of the ratios."""
        row = {"title": title, "unit": unit, "goal": goal, "runs": runs or len(values), **spread(values)}
        if reference is not None:
            row["reference"] = spread(reference)
            row["ratio"] = spread([a / b for a, b in zip(values, reference)])
        judged = row["ratio"]["median"] if reference is not None else row["median"]
        if met is not None:
            row["met"] = judged <= met if low_is_good else judged >= met
        self.rows.append(row)
        print(f"{title:<52} {cell(row)}  {ratio_cell(row)}  {verdict(row)}".rstrip(), flush=True)

    def run(self):
        for case in CASES:
            name = case.__name__
            if self.only and not re.search(self.only, name):
                continue
            try:
                case(self)
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                self.failures.append(f"{name}: {error}")
                print(f"{name}: {error}", file=sys.stderr, flush=True)


def measured(side):
    """A run in which something happened: on a very busy machine a short one may see no response at all."""
    for _ in range(3):
        result = side()
        if result.get("rate", 1) > 0:
            return result
    raise RuntimeError("no response came in the time of a run, three times")


def spread(values):
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "values": [round(v, 4) for v in values],
    }


def of(results, key):
    return [result[key] for result in results]


# Cases


def small_requests(suite):
    with suite.machine.server() as server:
        got = suite.in_turn(
            light=lambda: suite.light("-b", 64, "-w", 256), ours=lambda: suite.client(server, "-b", 64, "-w", 256)
        )
    suite.row(
        "64 B echo, window 256",
        "req/s",
        of(got["ours"], "rate"),
        "≥ 0.45 × speed of light",
        0.45,
        of(got["light"], "rate"),
    )


def one_in_flight(suite):
    with suite.machine.server() as server:
        got = suite.in_turn(tcp=lambda: suite.tcp("-b", 64), ours=lambda: suite.client(server, "-b", 64, "-w", 1))
    suite.row(
        "64 B echo, one in flight, p50",
        "µs",
        of(got["ours"], "p50_us"),
        "≤ 1.15 × raw TCP",
        1.15,
        of(got["tcp"], "p50_us"),
        low_is_good=True,
    )
    suite.row(
        "64 B echo, one in flight, p99",
        "µs",
        of(got["ours"], "p99_us"),
        "≤ 1.5 × raw TCP",
        1.5,
        of(got["tcp"], "p99_us"),
        low_is_good=True,
    )


def fixed_rate(suite):
    seconds = 2 if suite.quick else 12
    with suite.machine.server() as server:
        got = suite.in_turn(ours=lambda: suite.client(server, "-b", 64, "-r", 100000, seconds=seconds))["ours"]
    suite.row(
        f"100,000 req/s for {seconds} s, p99 from intended time",
        "µs",
        of(got, "p99_us"),
        "≤ 300 µs",
        300,
        low_is_good=True,
    )
    suite.row(f"100,000 req/s for {seconds} s, p99.9", "µs", of(got, "p999_us"), "≤ 1,000 µs", 1000, low_is_good=True)


def without_reply(suite):
    with suite.machine.server() as server:
        got = suite.in_turn(ours=lambda: suite.client(server, "-b", 64, "-w", 8, "-o"))["ours"]
    suite.row("64 B without reply", "messages/s", of(got, "rate"), "≥ 2,000,000", 2e6)


def streamed_bodies(suite):
    with suite.machine.server() as server:
        before = server.memory()
        server.reset_peak()
        got = suite.in_turn(
            tcp=lambda: suite.machine.reference("raw_tcp", "-o", suite.body),
            up=lambda: suite.stream(server, "up"),
            down=lambda: suite.stream(server, "down"),
        )
        grown = max(0, server.memory("VmHWM") - before)
    size = f"{suite.body >> 20} MiB body"
    for side, title in (("up", "client to server"), ("down", "server to client")):
        suite.row(
            f"{size}, {title}", "MB/s", of(got[side], "mb_per_s"), "≥ 1,500 MB/s", None, of(got["tcp"], "mb_per_s")
        )
        suite.rows[-1]["met"] = suite.rows[-1]["median"] >= 1500
    suite.row("the same, growth of the server's memory", "MB", [grown / 1e6], "constant: ≤ 16 MB", 16, low_is_good=True)


def larger_requests(suite):
    sizes = ((1000000, 8, "1 MB echo, 8 in flight"), (10000, 64, "10 kB echo, 64 in flight"))
    with suite.machine.server() as server:
        for size, window, title in sizes:
            options = ("-b", size, "-w", window)
            sides = {"tcp": lambda: suite.tcp(*options), "ours": lambda: suite.client(server, *options)}
            if size <= LIGHT_BODY:
                sides["light"] = lambda: suite.light(*options)
            got = suite.in_turn(**sides)
            ours = of(got["ours"], "mb_per_s")
            suite.row(title, "MB/s", ours, "≥ 0.55 × raw TCP", 0.55, of(got["tcp"], "mb_per_s"))
            if "light" in got:
                suite.row("the same, beside the speed of light", "MB/s", ours, reference=of(got["light"], "mb_per_s"))


def compressed(suite):
    with suite.machine.server() as server:
        for size, window, title in (
            (1024, 64, "1 KiB JSON compressed, window 64"),
            (102400, 8, "100 KiB JSON compressed, 8 in flight"),
        ):
            zlib = suite.machine.run(
                suite.machine.program("zlib_reference"), "-b", size, "-n", 5000 if size < 10000 else 200
            )
            seconds = max(suite.seconds, 0.5)
            got = suite.in_turn(ours=lambda: suite.client(server, "-z", "-b", size, "-w", window, seconds=seconds))[
                "ours"
            ]
            if size < 10000:
                suite.row(title, "req/s", of(got, "rate"), "≥ 63,500 req/s", 63500)
            else:
                suite.row(title, "MB/s", of(got, "mb_per_s"), "≥ 250 MB/s", 250)
            wire = [result["wire_sent_per_message"] for result in got]
            suite.row(
                "the same, bytes on the wire",
                "B",
                wire,
                "≤ 1.1 × zlib level 6",
                1.1,
                [zlib["wire_sent_per_message"]] * len(wire),
                low_is_good=True,
            )


def urgent(suite):
    with suite.machine.server() as server:
        got = suite.in_turn(ours=lambda: suite.stream(server, "-u", "both"))["ours"]
    suite.row(
        f"urgent 64 B beside {suite.body >> 20} MiB each way, p99",
        "µs",
        of(got, "p99_us"),
        "≤ 1,000 µs",
        1000,
        low_is_good=True,
    )


def idle_connections(suite):
    count, values, back = (2000 if suite.quick else 19000), [], []
    for _ in range(min(suite.rounds, 3)):
        with suite.machine.server() as server:
            suite.machine.run(suite.machine.program("handshake_client"), "-s", 0.1, server.url)
            time.sleep(0.2)
            before = server.memory()
            holder = subprocess.Popen(
                suite.machine.pinned(
                    suite.machine.client_core, suite.machine.program("handshake_client"), "-n", count, server.url
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                if holder.stdout.readline().strip() != "open":
                    raise RuntimeError(f"{count} connections could not be opened")
                time.sleep(0.5)
                values.append((server.memory() - before) / count)
            finally:
                holder.communicate(timeout=30)
            time.sleep(0.5)
            back.append((server.memory() - before) / 1e6)
    suite.row(f"{count:,} idle connections, server memory of each", "B", values, "≤ 1,000 B", 1000, low_is_good=True)
    suite.row("the same, what stays when they have gone", "MB", back)


def upgrades(suite):
    with suite.machine.server() as server:
        got = suite.in_turn(
            ours=lambda: suite.machine.run(suite.machine.program("handshake_client"), "-s", suite.seconds, server.url)
        )["ours"]
    suite.row("upgrades", "connections/s", of(got, "rate"), "≥ 10,000", 10000)


def busy_connections(suite):
    """The same load on each connection: what one of them carries by itself, and what many do together."""
    most = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500)
    counts = sorted({min(count, most) for count in ((100, 2000, 10000) if suite.quick else (10, 100, 1000, 10000))})
    with suite.machine.server() as server:

        def ask(count, window=16):
            # 160,000 requests take their time to go round.
            return suite.client(server, "-b", 64, "-w", window, "-c", count, "-m", 0.5, seconds=max(suite.seconds, 1))

        many = {str(count): lambda count=count: ask(count) for count in counts}
        got = suite.in_turn(best=lambda: ask(1, 256), one=lambda: ask(1), **many)
    one, best = of(got["one"], "rate"), of(got["best"], "rate")
    suite.row("64 B echo, one connection of window 16", "req/s", one)
    for count in counts:
        rates, title = of(got[str(count)], "rate"), f"64 B echo, {count:,} connections of window 16"
        suite.row(title, "req/s", rates, "≥ 0.75 × one of window 16", 0.75, one)
        suite.row("the same, beside one of window 256", "req/s", rates, reference=best)


def loop_threads(suite):
    if suite.machine.cores < 2:
        raise RuntimeError("two cores are needed")
    with suite.machine.server("-t", 1, core=None) as one, suite.machine.server("-t", 2, core=None) as two:

        def ask(server):
            return suite.machine.run(
                suite.machine.program("echo_client"),
                "-j",
                "-s",
                suite.seconds,
                "-m",
                suite.warm_up,
                "-P",
                "work",
                "-c",
                8,
                "-w",
                8,
                server.url,
                core=None,
            )

        got = suite.in_turn(one=lambda: ask(one), two=lambda: ask(two))
    suite.row(
        "handler of 20 µs, two loop threads beside one",
        "req/s",
        of(got["two"], "rate"),
        "≥ 1.7 × one",
        1.7,
        of(got["one"], "rate"),
    )


def tls(suite):
    with certificate() as (file, key), suite.machine.server(
        "-c", file, "-k", key
    ) as secure, suite.machine.server() as plain:

        def pair(title, unit, field, run, low_is_good=False):
            got = suite.in_turn(plain=lambda: run(plain), secure=lambda: run(secure))
            limit = 1 / 0.6 if low_is_good else 0.6
            goal = "≤ 1.67 × plain" if low_is_good else "≥ 0.6 × plain"
            suite.row(title, unit, of(got["secure"], field), goal, limit, of(got["plain"], field), low_is_good)

        pair("TLS 1.3: 64 B echo, window 256", "req/s", "rate", lambda s: suite.client(s, "-b", 64, "-w", 256))
        pair(
            "TLS 1.3: 64 B echo, one in flight, p50", "µs", "p50_us", lambda s: suite.client(s, "-b", 64, "-w", 1), True
        )
        pair("TLS 1.3: 10 kB echo, 64 in flight", "MB/s", "mb_per_s", lambda s: suite.client(s, "-b", 10000, "-w", 64))
        pair(
            f"TLS 1.3: {suite.body >> 20} MiB body, client to server",
            "MB/s",
            "mb_per_s",
            lambda s: suite.stream(s, "up"),
        )


def resumed_handshakes(suite):
    """The same client asks our server and OpenSSL's: one connection after the other, each with the ticket of the one
    before, and each gets an answer of a line over HTTP, because the ticket comes behind the handshake."""

    def ask(port):
        began = time.monotonic()
        done = subprocess.run(
            suite.machine.pinned(
                suite.machine.client_core,
                "openssl",
                "s_time",
                "-connect",
                f"127.0.0.1:{port}",
                "-reuse",
                "-tls1_3",
                "-www",
                "/page",
                "-time",
                1 if suite.quick else 2,
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        took = time.monotonic() - began
        # A letter for each connection: r for a resumed one.
        resumed = max((line.count("r") for line in done.stdout.splitlines() if set(line) == {"r"}), default=0)
        counted = re.search(r"^(\d+) connections in \d+ real seconds", done.stdout, re.MULTILINE)
        if counted is None or int(counted[1]) != resumed:
            raise RuntimeError(f"s_time resumed {resumed} connections: {(done.stderr or done.stdout)[-200:].strip()}")
        return {"rate": resumed / took}

    with certificate() as (file, key), suite.machine.server("-c", file, "-k", key) as ours:
        with suite.machine.openssl_server(file, key) as port:
            got = suite.in_turn(openssl=lambda: ask(port), ours=lambda: ask(ours.port))
    suite.row(
        "TLS 1.3: resumed handshakes, for openssl s_time",
        "connections/s",
        of(got["ours"], "rate"),
        "≥ 0.6 × openssl s_server",
        0.6,
        of(got["openssl"], "rate"),
    )


def connections_in_memory(suite):
    """Pairs in one process, without sockets: each end is a connection, so half as many pairs."""
    count = 50_000 if suite.quick else 500_000
    got = [suite.machine.run(suite.machine.program("memory_pairs"), "-n", count, timeout=600)]
    suite.row(
        f"{2 * count:,} connections in memory, made",
        "s for 1,000,000",
        [result["setup_s"] * 500_000 / count for result in got],
        "≤ 10 s",
        10,
        low_is_good=True,
    )
    suite.row(
        "the same, a request for each pair answered", "s for 1,000,000", [r["requests_s"] * 500_000 / count for r in got]
    )
    suite.row("the same, memory of each, idle", "B", of(got, "idle_bytes_per_end"))
    suite.row("the same, after a request", "B", of(got, "used_bytes_per_end"), "≤ 1,000 B", 1000, low_is_good=True)


def steady_state(suite):
    counted = gate.count_calls(suite.machine)["window_256"]
    suite.row("allocations of the server per request", "", [max(0, round(counted["allocations"], 3))], "0", 0.001, low_is_good=True)
    suite.row("locks of the server per request", "", [counted["locks"]], "≤ 1", 1, low_is_good=True)
    suite.row(
        "requests of one system call, window 256",
        "",
        [1 / max(counted["sends"], counted["receives"], 1e-9)],
        "≥ 100",
        100,
    )


def python(suite):
    def ask(kind, *more):
        return suite.machine.run(
            sys.executable,
            HERE / "python_client.py",
            kind,
            server.url,
            suite.seconds,
            *more,
            environment=python_environment(suite),
        )

    with suite.machine.server() as server:
        got = suite.in_turn(sync=lambda: ask("sync"), asyncio=lambda: ask("asyncio", 100))
    suite.row("Python, synchronous, 64 B", "round trips/s", of(got["sync"], "rate"), "≥ 20,000", 20000)
    suite.row("Python, asyncio, 64 B, window 100", "req/s", of(got["asyncio"], "rate"), "≥ 60,000", 60000)


def python_environment(suite):
    return {
        "PYTHONPATH": str(HERE.parent.parent / "bindings/python/src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LIBBLIP_PATH": str(suite.machine.build / "lib/libblip.so.1"),
    }


def load_time(suite):
    library = suite.machine.build / "lib/libblip.so.1"
    with suite.machine.server() as server:
        got = [
            suite.machine.run(suite.machine.program("load_time"), library, server.url) for _ in range(suite.rounds * 2)
        ]
    suite.row("dlopen and first connection", "ms", of(got, "total_ms"), "≤ 10 ms", 10, low_is_good=True)
    suite.row("of which dlopen", "ms", of(got, "load_ms"))


def other_libraries(suite):
    """A table of its own: nobody's goal, but what a user may compare with."""
    if suite.quick:
        return
    suite.seconds, whole = 0.6, suite.seconds
    peers = sorted(path.name for path in (suite.machine.out / "peers").glob("*") if path.is_file())
    table = {}
    with suite.machine.server() as server:
        for title, unit, key, options in (
            ("64 B, window 256", "req/s", "rate", ("-b", 64, "-w", 256)),
            ("64 B, one in flight, p50", "µs", "p50_us", ("-b", 64, "-w", 1)),
            ("1 MB, 8 in flight", "MB/s", "mb_per_s", ("-b", 1000000, "-w", 8)),
        ):
            sides = {"libblip": lambda: suite.client(server, *options), "raw TCP": lambda: suite.tcp(*options)}
            for peer in peers:
                sides[peer] = lambda peer=peer: suite.machine.reference(
                    f"peers/{peer}", "-s", suite.seconds, "-m", suite.warm_up, *options
                )
            table[f"{title}, {unit}"] = {
                name: spread(of(runs, key)) for name, runs in suite.in_turn(3, **sides).items()
            }
    suite.tables.append({"title": "Other libraries, an echo on one connection", "columns": table})
    suite.seconds = whole


def other_python_packages(suite):
    interpreter = suite.machine.out / "venv/bin/python"
    if suite.quick or not interpreter.exists():
        return
    seconds, table = 0.6, {}
    with suite.machine.server() as server:
        for title, window in (("64 B, one in flight", 1), ("64 B, window 100", 100)):
            sides = {
                "libblip": lambda: suite.machine.run(
                    sys.executable,
                    HERE / "python_client.py",
                    "asyncio",
                    server.url,
                    seconds,
                    window,
                    environment=python_environment(suite),
                )
            }
            for package in ("websockets", "pyzmq", "grpcio"):
                sides[package] = lambda package=package: suite.machine.run(
                    interpreter,
                    "-B",
                    HERE / "peers/python_peer.py",
                    package,
                    seconds,
                    window,
                    suite.machine.server_core,
                )
            got = suite.in_turn(3, **sides)
            table[f"{title}, req/s"] = {name: spread(of(runs, "rate")) for name, runs in got.items()}
    suite.tables.append({"title": "Other Python packages, asyncio", "columns": table})


CASES = [
    small_requests,
    one_in_flight,
    fixed_rate,
    without_reply,
    streamed_bodies,
    larger_requests,
    compressed,
    urgent,
    idle_connections,
    upgrades,
    busy_connections,
    loop_threads,
    tls,
    resumed_handshakes,
    connections_in_memory,
    steady_state,
    python,
    load_time,
    other_libraries,
    other_python_packages,
]


# Curves


def sweep(suite):
    """Throughput and latency over window, body size and connections."""
    curves = {"window": {}, "body": {}, "connections": {}}
    with suite.machine.server() as server:
        for window in (1, 4, 16, 64, 256, 1024):
            got = suite.in_turn(
                light=lambda: suite.light("-w", window), ours=lambda: suite.client(server, "-w", window)
            )
            curves["window"][window] = point(got)
        for size in (16, 64, 256, 1024, 4096, 15000):
            got = suite.in_turn(
                light=lambda: suite.light("-w", 64, "-b", size), ours=lambda: suite.client(server, "-w", 64, "-b", size)
            )
            curves["body"][size] = point(got)
        for count in (1, 10, 100, 1000, 10000):
            got = suite.in_turn(ours=lambda: suite.client(server, "-w", 16, "-c", count))
            curves["connections"][count] = point(got)
    return curves


def point(got):
    keys = ("rate", "mb_per_s", "p50_us", "p99_us", "p999_us")
    return {name: {key: statistics.median(of(results, key)) for key in keys} for name, results in got.items()}


def plot(curves, folder):
    try:
        import matplotlib
    except ImportError:
        print("no plots: matplotlib is not installed (make plots installs it)", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {
        "window": "requests in flight",
        "body": "bytes of body, window 64",
        "connections": "connections, window 16 each",
    }
    for name, points in curves.items():
        figure, (rate, latency) = pyplot.subplots(1, 2, figsize=(11, 4))
        places = list(points)
        for side, style, label in (("ours", "o-", "libblip"), ("light", "s--", "speed of light")):
            if side in points[places[0]]:
                rate.plot(places, [points[p][side]["rate"] for p in places], style, label=label)
        for key, label in (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9")):
            latency.plot(places, [points[p]["ours"][key] for p in places], "o-", label=label)
        for axes, title in ((rate, "requests a second"), (latency, "round trip of libblip, µs")):
            axes.set(xscale="log", yscale="log", xlabel=labels[name], title=title)
            axes.grid(True, alpha=0.3)
            axes.legend()
        figure.tight_layout()
        figure.savefig(folder / f"{name}.svg")
        print(f"wrote {folder / f'{name}.svg'}")


# Output


def figure_text(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def cell(row):
    text = figure_text(row["median"])
    if row["runs"] > 1:
        text += f" ({figure_text(row['min'])} to {figure_text(row['max'])})"
    return f"{text} {row['unit']}".strip()


def ratio_cell(row):
    ratio = row.get("ratio")
    return "" if ratio is None else f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def verdict(row):
    return {True: "yes", False: "no"}.get(row.get("met"), "")


def markdown(results):
    machine = results["machine"]
    kind = "virtual machine" if machine["virtual"] else "machine"
    lines = [
        f"{machine['processor']}, {kind} with {machine['cores']} cores and {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}, {machine['system']}; {machine['swift']}; {machine['cc']}; {machine['openssl']}; Python "
        f"{machine['python']}. Revision {machine['revision']}, {results['date']}, "
        f"{'short run, ' if results['quick'] else ''}{results['rounds']} rounds. Other processes used "
        f"{results['other_cores']:.2f} cores meanwhile.",
        "",
        "| | libblip | reference | ratio | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        reference = figure_text(row["reference"]["median"]) if "reference" in row else ""
        lines.append(
            f"| {row['title']} | {cell(row)} | {reference} | {ratio_cell(row)} | {row['goal']} | {verdict(row)} |"
        )
    for table in results["tables"]:
        columns = table["columns"]
        lines += ["", table["title"] + ":", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for name in next(iter(columns.values())):
            cells = [
                f"{figure_text(c[name]['median'])} ({figure_text(c[name]['min'])} to {figure_text(c[name]['max'])})"
                for c in columns.values()
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *(f"Failed: {failure}." for failure in results["failures"])]
    return "\n".join(lines).rstrip() + "\n"


def processor_seconds():
    """Busy time of all cores, stolen time too, and of the processes that this one has waited for."""
    numbers = [int(n) for n in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    busy = (sum(numbers) - numbers[3] - numbers[4]) / 100
    ours = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return busy - ours


def put_into_document(path, name, text):
    """Replaces what stands between two comments."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = path.read_text(encoding="utf-8").split(begin, 1)
    path.write_text(before + begin + "\n" + text + "\n" + end + rest.split(end, 1)[1], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=HERE.parent.parent / "build", help="where library and programs were built")
    parser.add_argument("--quick", action="store_true", help="about one minute instead of six, with wider spread")
    parser.add_argument("--rounds", type=int, help="runs of each figure (5, with --quick 3)")
    parser.add_argument("--only", help="a regular expression: only the cases whose names it finds")
    parser.add_argument("--sweep", action="store_true", help="measure curves and plot them, too")
    parser.add_argument("--document", type=Path, help="a Markdown file whose results are to be replaced")
    arguments = parser.parse_args()

    machine = Machine(arguments.build)
    suite = Suite(machine, arguments)
    began, others = time.monotonic(), processor_seconds()
    suite.run()
    results = {
        "machine": description(),
        "date": time.strftime("%Y-%m-%d"),
        "quick": suite.quick,
        "rounds": suite.rounds,
        "seconds": round(time.monotonic() - began, 1),
        "other_cores": round((processor_seconds() - others) / (time.monotonic() - began), 2),
        "rows": suite.rows,
        "tables": suite.tables,
        "failures": suite.failures,
        "not_measured": NOT_MEASURED,
    }
    if arguments.sweep:
        results["curves"] = sweep(suite)
        plot(results["curves"], machine.out)
    (machine.out / "results.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (machine.out / "results.md").write_text(markdown(results), encoding="utf-8")
    if arguments.document:
        put_into_document(arguments.document, "results", markdown(results))
        if shutil.which("valgrind"):
            put_into_document(arguments.document, "profile", gate.profile_table(machine))
    met = [row["met"] for row in suite.rows if "met" in row]
    print(
        f"{sum(met)} of {len(met)} goals met in {results['seconds']:.0f} s; other processes used "
        f"{results['other_cores']} cores; {machine.out / 'results.md'}"
    )
    return 1 if suite.failures else 0


if __name__ == "__main__":
    sys.exit(main())
