"""The argument parser and the help."""

import json
import re
import subprocess

import pytest

from program import BLIP, ROOT, blip

COMMANDS = ["serve", "request", "bench", "ping"]


def complaint(result):
    """The one line of a usage error."""
    text = result.stderr.decode()
    assert result.returncode == 64, text
    assert result.stdout == b""
    assert text.endswith("\n") and text.count("\n") == 1, text
    return text


def test_version_is_that_of_the_header():
    header = (ROOT / "Include" / "blip.h").read_text()
    version = ".".join(
        re.search(rf"#define BLIP_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")
    )
    result = blip("--version")
    assert result.returncode == 0
    assert result.stdout.decode() == f"blip {version} (libblip {version})\n"


def test_help_names_every_command():
    result = blip("--help")
    assert result.returncode == 0 and result.stderr == b""
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", result.stdout.decode(), re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    texts = {blip(*words).stdout for words in [(command, "--help"), (command, "-h"), ("help", command)]}
    assert len(texts) == 1
    text = texts.pop().decode()
    assert f"Usage: blip {command} " in text
    assert all(len(line) <= 120 for line in text.split("\n"))


@pytest.mark.parametrize("command", COMMANDS)
def test_manual_and_completion_know_every_option(command):
    manual = (ROOT / "docs" / "man" / "blip.1").read_text().replace("\\-", "-")
    completion = (ROOT / "packaging" / "blip.bash-completion").read_text()
    options = re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", blip(command, "--help").stdout.decode(), re.M)
    assert options
    for option in options:
        assert option in manual
        assert option in completion


def test_without_arguments_the_help_goes_to_standard_error():
    result = blip()
    assert result.returncode == 64
    assert result.stdout == b"" and b"Usage: blip COMMAND" in result.stderr


@pytest.mark.parametrize(
    ["arguments", "says"],
    [
        (["serv"], ["unknown command serv", "did you mean serve?", "blip --help"]),
        (["--verison"], ["unknown option --verison", "blip --help"]),
        (["help", "nothing"], ["no command nothing"]),
        (["request"], ["too few arguments", "URL PROFILE"]),
        (["ping"], ["too few arguments", "blip ping URL"]),
        (["ping", "1", "2"], ["unexpected argument 2"]),
        (["ping", "1", "--cuont", "1"], ["unknown option --cuont", "did you mean --count?", "blip ping --help"]),
        (["ping", "1", "-x"], ["unknown option -x"]),
        (["ping", "1", "--count"], ["--count wants a value", "--count N"]),
        (["ping", "1", "-c"], ["-c wants a value"]),
        (["ping", "1", "--json=yes"], ["--json takes no value"]),
        (["ping", "1", "-c", "1", "--count=2"], ["--count is given twice"]),
        (["ping", "1", "--count", "many"], ["--count wants a whole number, not 'many'"]),
        (["ping", "1", "--count", "0"], ["--count wants a number from 1 to"]),
        (["ping", "1", "--count", "99999999999999999999"], ["--count wants a whole number"]),
        (["ping", "1", "--timeout", "-1"], ["--timeout wants seconds"]),
        (["ping", "1", "--timeout", "nan"], ["--timeout wants seconds"]),
        (["bench", "1", "--size", "8G"], ["--size wants a number from 0 to 67108864"]),
        (["bench", "1", "--size", "9999999999999G"], ["--size wants a whole number"]),
        (["request", "1", "echo", "-p", "novalue"], ["--property wants KEY=VALUE, not 'novalue'"]),
        (["request", "1", "echo", "-p", "=value"], ["--property wants KEY=VALUE"]),
        (["request", "1", "echo", "body"], ["unexpected argument 'body'", "-d TEXT"]),
        (["request", "1", "echo", "-d", "a", "-f", "b"], ["the body comes from one place"]),
        (["request", "1", "echo", "-d", "a", "-"], ["the body comes from one place"]),
        (["request", "1", "echo", "--no-reply", "-o", "/dev/null"], ["--no-reply and --output"]),
        (["request", "1", "echo", "-f", "/nonexistent"], ["cannot read '/nonexistent'", "No such file"]),
        (["request", "1", "echo", "-f", "/"], ["cannot read '/'", "directory"]),
        (["request", "1", "echo", "--header", "none"], ["--header wants 'Name: value'"]),
        (["request", "1", "echo", "--cert", "x"], ["--cert needs --key"]),
        (["request", "1", "echo", "--key", "x"], ["--key needs --cert"]),
        (["request", "1", "echo", "--ca-file", "/nonexistent"], ["cannot read '/nonexistent' of --ca-file"]),
        (["request", "1", "echo", "--protocol", "a b"], ["--protocol wants BLIP_3", "'a b'"]),
        (["request", "nowhere", "echo"], ["cannot use the address 'nowhere'", "port"]),
        (["request", "ftp://host/", "echo"], ["'ftp://host/': there is no such scheme", "ws://host:port/path"]),
        (["serve", "ftp://host/"], ["'ftp://host/': there is no such scheme", "ws://host:port/path"]),
        (["request", "ws://", "echo"], ["cannot use the address 'ws://'", "no host"]),
        (["request", "ws://ho st/", "echo"], ["cannot use the address", "host names cannot have"]),
        (["request", "ws://host:99999/", "echo"], ["the port is a number from 1 to 65535"]),
        (["request", "ws://host:0/", "echo"], ["the port is a number from 1 to 65535"]),
        (["request", "host:x", "echo"], ["the port is a number from 1 to 65535"]),
        (["request", "99999", "echo"], ["the port is a number from 1 to 65535"]),
        (["request", "0", "echo"], ["the port is a number from 1 to 65535"]),
        (["request", "/tmp/a.sock", "echo"], ["for a Unix socket: unix:/tmp/a.sock"]),
        (["serve", "./a.sock"], ["for a Unix socket: unix:./a.sock"]),
        (["request", "u:secret@host:1", "echo"], ["'host:1'", "user:password@ needs a whole URL"]),
        (["request", "1", "echo", "--header", "Upgrade: x"], ["Upgrade is set by the library"]),
        (["request", "1", "echo", "--header", "a b: x"], ["--header: 'a b' cannot be sent"]),
        (["request", "1", "echo", "-o", "/nonexistent/x"], ["cannot write '/nonexistent/x': No such file"]),
        (["request", "1", "echo", "-o", "/tmp"], ["cannot write '/tmp': it is a directory"]),
        (["serve", "127.0.0.1:x"], ["cannot use the address '127.0.0.1:x'", "the port"]),
        (["serve", "127.0.0.1:65536"], ["the port is a number from 0 to 65535, where 0 is a free one"]),
        (["serve", "::1:4984"], ["an IPv6 address stands in brackets"]),
        (["serve", "host/path"], ["a path needs a whole URL"]),
        (["serve", "unix:"], ["a Unix socket's address is unix:/path"]),
        (["serve", "wss://:0"], ["needs a certificate", "--tls-cert FILE"]),
        (["serve", ":0", "--tls-cert", "x"], ["--tls-cert needs --tls-key"]),
        (["serve", ":0", "--client-ca", "/dev/null"], ["--client-ca needs --tls-cert"]),
        (["serve", ":0", "--path", "db"], ["--path wants a path that begins with /"]),
        (["serve", ":0", "--protocol", "nonsense"], ["--protocol wants BLIP_3"]),
        (["serve", ":0", "--threads", "0"], ["--threads wants a number from 1 to 256"]),
        (["ping", "1", "--\x1b[31mred"], ["unknown option --\\x1b[31mred"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_used_is_said_in_one_line(arguments, says):
    text = complaint(blip(*arguments))
    for part in says:
        assert part in text


@pytest.mark.parametrize(
    "words",
    [
        ["request", "ws://joe:secret@/", "echo"],
        ["request", "ws://joe:sec/secret@host", "echo"],
        ["request", "joe:secret@host:1", "echo"],
        ["request", "ftp://joe:secret@host", "echo"],
        ["serve", "ws://joe:secret@127.0.0.1:0"],
        ["ping", "1", "ws://joe:secret@host/"],
        ["ws://joe:secret@host/"],
    ],
    ids=" ".join,
)
def test_passwords_are_not_shown(words):
    text = complaint(blip(*words))
    assert "secret" not in text and "joe:" not in text


def test_wrong_options_as_json():
    result = blip("ping", "1", "--json", "--cuont", "1")
    assert result.returncode == 64
    failure = json.loads(result.stdout)
    assert (failure["type"], failure["status"]) == ("failure", "BLIP_ERROR_ARGUMENT")
    assert result.stderr.decode() == f"blip ping: {failure['text']}\n"
    assert blip("ping", "1", "--cuont", "--", "--json").stdout == b""


def test_properties_at_the_limit(server):
    text = complaint(blip("request", server.url, "sink", "-p", "a=" + "x" * 102_385))
    assert "the properties are 102,401 bytes, at most 102,400 are allowed" in text
    assert blip("request", server.url, "sink", "-p", "a=" + "x" * 102_384).stdout == b"0"


def test_closed_standard_input():
    script = 'exec "$0" request 1 echo - <&-'
    text = complaint(subprocess.run(["sh", "-c", script, BLIP], capture_output=True, timeout=30))
    assert "cannot read standard input: Bad file descriptor" in text


def test_options_may_stand_anywhere_and_be_joined(server):
    forms = [
        ["request", server.url, "echo", "--data", "x"],
        ["request", "--data", "x", server.url, "echo"],
        ["request", server.url, "--data=x", "echo"],
        ["request", server.url, "-dx", "echo"],
        ["request", "-d", "x", "--", server.url, "echo"],
    ]
    for form in forms:
        result = blip(*form)
        assert (result.returncode, result.stdout) == (0, b"x"), form


def test_a_value_may_look_like_an_option(server):
    result = blip("request", server.url, "echo", "--data", "--json")
    assert (result.returncode, result.stdout) == (0, b"--json")
