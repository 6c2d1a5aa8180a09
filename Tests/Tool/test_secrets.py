"""Users, tokens and cookies of the tool, and that none of it is ever shown."""

import base64

import pytest

from program import Server, blip

PASSWORD = "s3cr3t-passw0rd"
TOKEN = "s3cr3t.t0ken"
COOKIE = "s3cr3t-c00kie"


def words(*outputs):
    return b"".join(output or b"" for output in outputs)


def test_users(tmp_path):
    hashed = blip("hash-password", input=PASSWORD.encode() + b"\n").stdout.decode()
    assert hashed.startswith("$scrypt$") and PASSWORD not in hashed
    users = tmp_path / "users"
    users.write_text(f"hashed:{hashed}\nplain:{PASSWORD}\n")
    login = tmp_path / "login"
    login.write_text(f"plain:{PASSWORD}\n")
    with Server("--user", f"@{users}", "--user", f"me:{PASSWORD}", "--realm", "here", "-v") as server:
        for user in (f"hashed:{PASSWORD}", f"me:{PASSWORD}", f"@{login}"):
            result = blip("request", server.url, "echo", "-d", "x", "--user", user, "-v")
            assert (result.returncode, result.stdout) == (0, b"x"), result.stderr
            assert PASSWORD.encode() not in result.stderr
        url = server.url.replace("://", f"://me:{PASSWORD}@")
        assert blip("request", url, "echo", "-d", "x").stdout == b"x"
        for options, advice in (
            (("--user", f"me:{PASSWORD}x"), "--user may be wrong"),
            (("--bearer", TOKEN), "--bearer may be wrong"),
            ((), "give user:password@ in the URL"),
        ):
            for extra in (("-v",), ("--json",)):
                result = blip("request", server.url, "echo", *options, *extra)
                assert result.returncode == 2 and advice in result.stderr.decode()
                assert b"s3cr3t" not in words(result.stdout, result.stderr)
        _, output, errors = server.stop()
        assert b"A user name and a password are needed" in errors
        assert b"s3cr3t" not in words(output, errors) and base64.b64encode(PASSWORD.encode()) not in errors


@pytest.mark.parametrize("option", ["--bearer", "--cookie", "--header", "--user"])
def test_what_is_sent(raw_server, option):
    seen = []
    value = {
        "--bearer": TOKEN,
        "--cookie": f"session={COOKIE}; Path=/elsewhere",
        "--header": f"Authorization: Own {TOKEN}",
        "--user": f"me:{PASSWORD}",
    }[option]
    expected = {
        "--bearer": f"Authorization: Bearer {TOKEN}",
        "--cookie": f"Cookie: session={COOKIE}",
        "--header": f"Authorization: Own {TOKEN}",
        "--user": "Authorization: Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode(),
    }[option]

    def answer(connection):
        seen.append(connection.recv(1 << 16).decode())
        connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

    for extra in (("-v",), ("--json",)):
        result = blip("request", raw_server(answer), "echo", option, value, *extra)
        assert result.returncode == 2
        assert b"s3cr3t" not in words(result.stdout, result.stderr)
        assert expected + "\r\n" in seen[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--user", "s3cr3t"),
        ("--user", ":s3cr3t"),
        ("--user", "a:s3cr3t\x01"),
        ("--bearer", "s3cr3t with spaces"),
        ("--cookie", "s3cr3t"),
        ("--cookie", "a=s3cr3t\x01"),
        ("--user", "a:s3cr3t", "--bearer", "s3cr3t"),
    ],
)
def test_mistakes_do_not_show_them(arguments):
    result = blip("request", "ws://127.0.0.1:1/", "echo", *arguments)
    assert result.returncode == 64
    assert result.stderr and b"s3cr3t" not in words(result.stdout, result.stderr)


def test_mistakes_of_servers(tmp_path):
    for arguments in (("--user", "s3cr3t"), ("--user", f"@{tmp_path}/none"), ("--realm", "x"), ("--origin", "x")):
        result = blip("serve", "127.0.0.1:0", *arguments)
        assert result.returncode == 64 and b"s3cr3t" not in result.stderr
    assert blip("hash-password", input=b"").returncode == 64


def test_origins(tmp_path):
    with Server("--origin", "https://app.example") as server:
        assert blip("request", server.url, "echo", "-d", "x", "--header", "Origin: https://app.example").stdout == b"x"
        result = blip("request", server.url, "echo", "-d", "x", "--header", "Origin: https://evil.example")
        assert result.returncode == 2 and b"403" in result.stderr
