"""`blip bench` and `blip ping`."""

import json
import signal
import subprocess
import time

import pytest

from program import BLIP, Server, blip


@pytest.mark.parametrize("flags", [[], ["--compressed"], ["--protocol", "BLIP"]], ids=str)
@pytest.mark.parametrize("size", [0, 100, 100_000])
def test_bench_reports_what_it_did(server, size, flags):
    count = 2000 if size < 1000 else 200
    start = time.monotonic()
    result = blip("bench", server.url, "--size", size, "--count", count, "--in-flight", 16, "--json", *flags)
    elapsed = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["count"], report["errors"], report["size"], report["inFlight"]) == (count, 0, size, 16)
    assert 0 < report["seconds"] < elapsed
    assert report["requestsPerSecond"] == pytest.approx(count / report["seconds"], rel=0.01)
    assert report["megabytesPerSecond"] == pytest.approx(2 * size * count / report["seconds"] / 1e6, rel=0.01, abs=0.01)
    times = report["microseconds"]
    assert 0 < times["p50"] <= times["p99"] <= times["p999"] <= times["maximum"]
    assert times["mean"] <= times["maximum"]


def test_bench_for_people(server):
    result = blip("bench", server.url, "-n", "1k", "-c", "4")
    text = result.stdout.decode()
    assert result.returncode == 0
    assert text.startswith("1000 replies in ")
    assert "requests/s" in text and "MB/s" in text and "p99.9" in text


def test_bench_percentiles_are_those_of_the_server():
    """A hundred requests, one after another: their times add up to the whole."""
    with Server() as server:
        report = json.loads(blip("bench", server.url, "-n", "100", "-c", "1", "--json").stdout)
    times = report["microseconds"]
    assert times["mean"] * 100 == pytest.approx(report["seconds"] * 1e6, rel=0.2)
    assert times["p50"] < report["seconds"] * 1e6 / 50


def test_bench_counts_error_replies(server):
    result = blip("bench", server.url, "--profile", "nobody", "-n", "50", "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["errors"] == 50 and report["firstError"].startswith("BLIP/404: ")
    assert result.stderr.decode() == f"blip: {server.url} answered with an error: {report['firstError']}\n"


def test_bench_of_one(server):
    assert blip("bench", server.url, "-n", "1").stdout.startswith(b"1 reply in ")


def test_bench_when_the_server_dies():
    with Server("-v") as server:
        process = subprocess.Popen([BLIP, "bench", server.url, "-n", "100M"], stderr=subprocess.PIPE)
        server.wait_for_client()
        server.process.kill()
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 2
    assert b"lost the connection" in errors and b"replies" in errors and errors.count(b"\n") == 1


def test_bench_when_the_server_stops_answering():
    with Server("-v") as server:
        process = subprocess.Popen(
            [BLIP, "bench", server.url, "-n", "100M", "--timeout", "1"], stderr=subprocess.PIPE
        )
        server.wait_for_client()
        server.process.send_signal(signal.SIGSTOP)
        _, errors = process.communicate(timeout=10)
        server.process.send_signal(signal.SIGCONT)
    assert process.returncode == 2
    assert b"does not answer any more" in errors and b"--timeout" in errors


def test_ping(server):
    result = blip("ping", server.url, "-c", "3", "-i", "0.01")
    assert result.returncode == 0, result.stderr
    rows = result.stdout.decode().split("\n")
    assert [row.split(" from ")[0] for row in rows[:3]] == ["pong 1", "pong 2", "pong 3"]
    assert rows[3].startswith("3 answered: least ")


def test_ping_as_json(server):
    result = blip("ping", server.url, "-c", "2", "-i", "0.01", "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["type"] for event in events] == ["pong", "pong", "summary"]
    assert events[2]["minimum"] == min(event["microseconds"] for event in events[:2])
    assert events[2]["count"] == 2


def test_ping_of_a_silent_peer():
    with Server() as server:
        process = subprocess.Popen(
            [BLIP, "ping", server.url, "-c", "100", "-i", "0.1", "--timeout", "0.5"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout.readline().startswith(b"pong 1")
        server.process.send_signal(signal.SIGSTOP)
        _, errors = process.communicate(timeout=10)
        server.process.send_signal(signal.SIGCONT)
    assert process.returncode == 2
    assert errors.count(b"\n") == 1 and b"no pong from" in errors
