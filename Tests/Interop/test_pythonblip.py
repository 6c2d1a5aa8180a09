"""pythonblip from PyPI, a client for Sync Gateway's replication protocol, as a live client of our server.

It never cuts messages into frames, sends no usable compression, and passes properties through JSON, so the requests
here are plain and have ASCII properties. What it receives may be of many frames.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from program import Server

PYTHON = os.environ.get("PYTHONBLIP")


@pytest.fixture(scope="module")
def url():
    with Server("--protocol", "BLIP_3+CBMobile_3") as server:
        yield server.url


def talk(url, *requests):
    if not PYTHON:
        pytest.skip("PYTHONBLIP names no Python that has pythonblip: run make test-interop")
    result = subprocess.run(
        [PYTHON, str(Path(__file__).with_name("pythonblip_client.py")), url],
        input=json.dumps(requests).encode(),
        capture_output=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr.decode()
    replies = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(replies) == len(requests), result.stderr.decode()
    return replies


def test_requests_one_after_another(url):
    bodies = ["", "x", "y" * 3000] * 5
    replies = talk(url, *({"properties": {"Profile": "echo", "k": f"v{n}"}, "body": b} for n, b in enumerate(bodies)))
    for number, (reply, body) in enumerate(zip(replies, bodies)):
        assert (reply["type"], reply["body"], reply["properties"]) == (1, body, {"k": f"v{number}"})
        assert reply["number"] == reply["sent"] == number + 1


def test_a_long_request_in_one_frame(url):
    body = "".join(f"{number}," for number in range(20_000))
    (reply,) = talk(url, {"properties": {"Profile": "echo"}, "body": body})
    assert reply["body"] == body


def test_a_long_reply_of_many_frames_with_its_acknowledgements(url):
    size = 1_000_000
    (reply, after) = talk(
        url,
        {"properties": {"Profile": "source", "size": str(size)}},
        {"properties": {"Profile": "echo"}, "body": "after"},
    )
    assert reply["body"] == "".join("%015d\n" % number for number in range(size // 16))
    assert after["body"] == "after"


def test_error_replies(url):
    replies = talk(
        url,
        {"properties": {"Profile": "error", "domain": "HTTP", "code": "409", "text": "conflict"}},
        {"properties": {"Profile": "nobody"}},
        {"properties": {"Profile": "echo"}, "body": "still there"},
    )
    assert "409" in replies[0]["error"] and "conflict" in replies[0]["error"]
    assert "404" in replies[1]["error"]
    assert replies[2]["body"] == "still there"
