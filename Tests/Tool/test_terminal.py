"""What a person at a terminal sees: nothing a peer sends may drive the terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from program import BLIP

NASTY = "a\x1b[31mred\x07\r\x9bb\u202ec\tok\n"


def on_terminal(*arguments, stdout=True, stderr=True, input=b"", timeout=30):
    """Runs the tool with outputs on a terminal; returns the exit code and everything that was shown."""
    controller, terminal = pty.openpty()
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [BLIP, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=terminal if stdout else subprocess.DEVNULL,
        stderr=terminal if stderr else subprocess.DEVNULL,
    )
    os.close(terminal)
    if input:
        process.stdin.write(input)
    process.stdin.close()
    shown = b""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not select.select([controller], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(controller, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(controller)
    return process.wait(timeout=10), shown


def test_a_body_cannot_drive_the_terminal(server):
    code, shown = on_terminal("request", server.url, "echo", "-", input=NASTY.encode())
    assert code == 0
    assert shown.decode() == "a\\x1b[31mred\\x07\\r\\x9bb\\u{202e}c\tok\n"


def test_bytes_that_are_no_text_are_shown_as_escapes(server):
    code, shown = on_terminal("request", server.url, "echo", "-", input=b"\xff\xfe\xc3(\xe2\x82")
    assert code == 0
    assert shown == b"\\xff\\xfe\\xc3(\\xe2\\x82\n"


def test_characters_cut_by_frames_are_whole(server):
    text = "€" * 100_000
    code, shown = on_terminal("request", server.url, "echo", "-", stderr=False, input=text.encode())
    assert code == 0
    assert shown.decode() == text + "\n"


def test_into_a_pipe_a_body_goes_unchanged(server):
    result = subprocess.run(
        [BLIP, "request", server.url, "echo", "-"], input=NASTY.encode(), capture_output=True, timeout=30
    )
    assert result.stdout == NASTY.encode()


def test_properties_cannot_drive_the_terminal(server):
    code, shown = on_terminal("request", server.url, "echo", "-v", "-p", "k\x1b[2J=v\x1b]0;title\x07")
    assert code == 0
    assert b"\x1b" not in shown and b"\x07" not in shown
    assert b"< k\\x1b[2J: v\\x1b]0;title\\x07" in shown


def test_a_long_body_shows_its_progress(server):
    reader, writer = os.pipe()
    slow = "for i in 1 2 3 4 5 6 7 8 9; do head -c 99999 /dev/zero; sleep 0.15; done"
    process = subprocess.Popen(["sh", "-c", slow], stdout=writer)
    os.close(writer)
    controller, terminal = pty.openpty()
    tool = subprocess.Popen(
        [BLIP, "request", server.url, "sink", "-"], stdin=reader, stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(reader)
    os.close(terminal)
    output, _ = tool.communicate(timeout=30)
    process.wait()
    shown = b""
    while select.select([controller], [], [], 0.2)[0]:
        try:
            shown += os.read(controller, 65536)
        except OSError:
            break
    os.close(controller)
    assert output == b"899991"
    assert re.search(rb"sending [\d.]+ kB, [\d.]+ [kM]B/s", shown)
    assert shown.endswith(b"\r\x1b[K"), "the line is taken away at the end"


def test_no_progress_without_a_terminal(server):
    result = subprocess.run(
        ["sh", "-c", f"(head -c 300000 /dev/zero; sleep 0.9; head -c 9 /dev/zero) | {BLIP} request {server.url} sink -"],
        capture_output=True,
        timeout=30,
    )
    assert (result.stdout, result.stderr) == (b"300009", b"")


def test_a_typed_password_is_not_shown():
    controller, terminal = pty.openpty()
    process = subprocess.Popen([BLIP, "hash-password"], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal)
    shown, deadline = b"", time.monotonic() + 10
    while b"password: " not in shown and time.monotonic() < deadline:
        if select.select([controller], [], [], 0.2)[0]:
            shown += os.read(controller, 4096)
    while termios.tcgetattr(terminal)[3] & termios.ECHO and time.monotonic() < deadline:
        time.sleep(0.01)
    os.write(controller, b"s3cr3t\n")
    out, _ = process.communicate(timeout=10)
    while select.select([controller], [], [], 0.2)[0]:
        shown += os.read(controller, 4096)
    assert process.returncode == 0 and out.startswith(b"$scrypt$")
    assert b"s3cr3t" not in shown
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    os.close(controller)
    os.close(terminal)


def test_the_terminal_is_as_before_when_a_password_is_not_typed():
    controller, terminal = pty.openpty()
    process = subprocess.Popen([BLIP, "hash-password"], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal)
    deadline = time.monotonic() + 10
    while termios.tcgetattr(terminal)[3] & termios.ECHO and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == -signal.SIGINT
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    os.close(controller)
    os.close(terminal)
