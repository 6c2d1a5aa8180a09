"""Proxies and the choice of addresses, as the tool has them."""

import os
import sys

import pytest

from program import ROOT, Server, blip

sys.path.insert(0, str(ROOT / "bindings" / "python" / "tests"))
from proxies import Proxy, SocksProxy  # noqa: E402

CLEAN = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}


@pytest.mark.parametrize("kind", [Proxy, SocksProxy])
def test_a_proxy_from_the_command_line(kind):
    with Server() as server, kind() as proxy:
        result = blip("request", server.url, "echo", "--data", "hello", "--proxy", proxy.url(), env=CLEAN)
        assert (result.returncode, result.stdout) == (0, b"hello"), result.stderr
        assert proxy.seen == [f"127.0.0.1:{server.port}"]


def test_the_environment_and_its_exceptions():
    with Server() as server, Proxy() as proxy:
        environment = {**CLEAN, "http_proxy": proxy.url()}
        for more, options, count in (({}, [], 1), ({"no_proxy": "127.0.0.1"}, [], 1), ({}, ["--proxy", ""], 1)):
            result = blip("request", server.url, "echo", "--data", "x", *options, env={**environment, **more})
            assert result.returncode == 0, result.stderr
            assert len(proxy.seen) == count


def test_a_proxy_that_refuses_is_named_without_its_password():
    with Proxy(user="me", password="right") as proxy:
        result = blip("request", "ws://127.0.0.1:9/", "echo", "--proxy", proxy.url("me:secret@"), env=CLEAN)
        text = result.stderr.decode()
        assert result.returncode == 2 and "--proxy" in text and str(proxy.port) in text, text
        assert "secret" not in text


def test_a_proxy_that_is_not_there_is_what_the_advice_is_about():
    with Proxy() as proxy:
        url = proxy.url()
    result = blip("request", "ws://127.0.0.1:9/", "echo", "--proxy", url, env=CLEAN)
    text = result.stderr.decode()
    assert result.returncode == 2 and url in text and "check --proxy" in text and "blip serve" not in text, text


@pytest.mark.parametrize("options", [["--proxy", "ftp://x"], ["-4", "-6"], ["--interface"]])
def test_what_cannot_be_meant(options):
    result = blip("request", "ws://127.0.0.1:9/", "echo", *options, env=CLEAN)
    assert result.returncode == 64, result.stderr


def test_families_and_interfaces():
    with Server() as server:
        assert blip("request", server.url, "echo", "--data", "x", "-4", "--interface", "lo", env=CLEAN).returncode == 0
        result = blip("request", server.url, "echo", "-6", env=CLEAN)
        assert result.returncode == 2 and b"IPv6" in result.stderr
