"""Counters of connections, listeners and the process, and their text for Prometheus."""

from __future__ import annotations

import re
import urllib.request
from typing import Dict, List, Tuple

from conftest import run

import blip
import blip.sync

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:{{({LABEL}(?:,{LABEL})*)}})? ([0-9.]+)")


def parse(text: str) -> Dict[str, List[Tuple[Dict[str, str], float]]]:
    """A strict reading of the text format: each family once, help before type before samples, units where due."""
    samples: Dict[str, List[Tuple[Dict[str, str], float]]] = {}
    kinds: Dict[str, str] = {}
    helped, family = "", ""
    assert text.endswith("\n") and "\n\n" not in text
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped, words = line[7:].split(" ", 1)
            assert re.fullmatch(NAME, helped) and helped not in kinds and words.endswith(".")
        elif line.startswith("# TYPE "):
            family, kind = line[7:].split(" ")
            assert family == helped and kind in ("counter", "gauge", "histogram")
            assert family.endswith("_total") == (kind == "counter")
            kinds[family] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name = match[1]
            if kinds[family] == "histogram":
                assert name in (family + "_bucket", family + "_sum", family + "_count")
            else:
                assert name == family
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            assert labels not in [known for known, _ in samples.get(name, [])]
            samples.setdefault(name, []).append((labels, float(match[3])))
    for family, kind in kinds.items():
        if kind == "histogram":
            buckets = [(labels["le"], count) for labels, count in samples[family + "_bucket"]]
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            ends = [float(end) for end, _ in buckets[:-1]]
            assert ends == sorted(ends) and buckets[-1] == ("+Inf", samples[family + "_count"][0][1])
    return samples


async def count() -> None:
    before = blip.counters()
    async with blip.serve("127.0.0.1", 0) as listener:
        listener.handler("echo")(lambda request: request.body)
        async with blip.connect(listener.url) as connection:
            for _ in range(10):
                await connection.request("echo", b"x" * 1000, compressed=True)
            await connection.ping()
            mine, all_of_it = connection.counters(), listener.counters()
            assert set(mine) == set(blip.COUNTERS) and len(mine) == len(blip.COUNTERS)
            assert mine["round_trips"] == mine["messages_sent"] == mine["messages_received"] == 10
            assert mine["compression_input"] >= 10_000 > mine["compression_output"]
            assert all_of_it["connections"] == 1 and all_of_it["messages_received"] == 10
            median = mine.percentile(50)
            assert median is not None and 0 < median < 60
            assert sum(count for _, count in mine.buckets()) == 10
            both = mine + mine
            assert both["messages_sent"] == 20 and both.percentile(50) == median
    after = blip.counters()
    assert after["messages_sent"] - before["messages_sent"] == 20
    assert after["connections_opened"] - before["connections_opened"] == 2
    assert blip.Counters().percentile(50) is None


def test_counters_of_connection_listener_and_process() -> None:
    run(count())


def test_metrics_text_is_what_prometheus_reads() -> None:
    with blip.sync.serve("127.0.0.1", 0, metrics_path="/metrics") as listener:
        listener.handler("echo")(lambda request: request.body)
        with blip.sync.connect(listener.url) as connection:
            connection.request("echo", b"x")
            with urllib.request.urlopen(listener.url.replace("ws://", "http://") + "metrics", timeout=30) as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                samples = parse(answer.read().decode())
            assert samples["blip_build_info"] == [({"version": blip.LIBRARY_VERSION}, 1)]
            assert samples["blip_listener_connections"] == [({"listener": listener.url}, 1)]
            assert samples["blip_round_trip_seconds_count"][0][1] >= 1
            names = set(parse(blip.metrics_text()))
            assert names == set(samples)
            assert {name for name in names if name.endswith(("_seconds_total", "_bytes_total"))}
