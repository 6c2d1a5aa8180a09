"""The listener's pages in a real browser."""

import hashlib
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from program import BLIP, Server, blip

SCREENSHOTS = Path(os.environ.get("SCREENSHOTS", Path(__file__).resolve().parents[2] / "build" / "screenshots"))


def http(server, path):
    return server.url.replace("ws://", "http://").rstrip("/") + path


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    (root / "pictures").mkdir(parents=True)
    (root / "notes.txt").write_text("first line\n")
    (root / "<i>odd & name.txt").write_text("odd")
    (root / "data.bin").write_bytes(os.urandom(200_000))
    return root


def cells(page):
    return page.run("[...document.querySelectorAll('td.name a')].map((a) => a.textContent)")


def test_a_folder_and_a_file(page, folder):
    with Server("--files", str(folder)) as server:
        page.open(http(server, "/files/"))
        assert cells(page) == ["pictures/", "<i>odd & name.txt", "data.bin", "notes.txt"]
        assert page.run("document.querySelector('i')") is None
        # The style sheet is there, which the policy allows and nothing else.
        assert page.run("getComputedStyle(document.body).margin") == "0px"
        page.screenshot(SCREENSHOTS / "files.png")
        page.run("document.querySelectorAll('td.name a')[1].click()")
        page.until("document.body && document.body.textContent.trim() === 'odd'")
        assert page.errors == []


def test_a_page_that_is_not_there(page, folder):
    with Server("--files", str(folder)) as server:
        page.open(http(server, "/files/nothing"))
        assert page.run("document.title") == "404 Not found"
        assert page.run("document.querySelector('h1').getBoundingClientRect().height") > 20
        page.screenshot(SCREENSHOTS / "404.png")
        # Chromium reports the status itself.
        assert all("404" in json.dumps(error) for error in page.errors)


def test_an_upload_comes_back_bit_equal(page, folder, tmp_path):
    content = os.urandom(3_000_000)
    (tmp_path / "upload.bin").write_bytes(content)
    (tmp_path / "other.txt").write_text("second file")
    with Server("--files", str(folder), "--files-writable") as server:
        page.open(http(server, "/files/pictures/"))
        page.choose_files("input[type=file]", tmp_path / "upload.bin", tmp_path / "other.txt")
        page.run("document.querySelector('input[type=file]').form.requestSubmit()")
        page.until("document.querySelectorAll('td.name a').length === 2")
        assert cells(page) == ["other.txt", "upload.bin"]
        assert (folder / "pictures" / "upload.bin").read_bytes() == content
        digest = page.run(
            "fetch('upload.bin').then((r) => r.arrayBuffer()).then((b) => crypto.subtle.digest('SHA-256', b))"
            ".then((d) => [...new Uint8Array(d)].map((v) => v.toString(16).padStart(2, '0')).join(''))"
        )
        assert digest == hashlib.sha256(content).hexdigest()
        page.run("document.querySelector('input[name=folder]').value = 'made here'")
        page.run("document.querySelector('input[name=folder]').form.requestSubmit()")
        page.until("document.querySelectorAll('td.name a').length === 3")
        assert (folder / "pictures" / "made here").is_dir()
        page.run("document.querySelector('button[value=\"other.txt\"]').click()")
        page.until("document.querySelectorAll('td.name a').length === 2")
        assert not (folder / "pictures" / "other.txt").exists()
        assert page.errors == []


def test_a_page_from_elsewhere_changes_nothing(page, folder, tmp_path):
    """Another server's page may send forms here, but gets nothing done and reads nothing."""
    with Server("--files", str(folder), "--files-writable") as server, Server("--files", str(folder)) as other:
        page.open(http(other, "/files/"))
        target = http(server, "/files/")
        sent = page.run(
            "fetch(%r, {method: 'POST', mode: 'no-cors', body: (() => { const f = new FormData(); f.append('token', 'x');"
            " f.append('file', new Blob(['x']), 'evil'); return f })()}).then(() => 'sent', () => 'refused')" % target
        )
        assert sent in ("sent", "refused")
        assert not (folder / "evil").exists()
        assert page.run("fetch(%r).then((r) => r.text(), () => null)" % target) is None


@pytest.fixture
def dashboard(page):
    with Server("--dashboard") as server:
        page.open(http(server, "/dashboard/"))
        page.until("document.getElementById('state').textContent === 'live'")
        page.until("document.querySelectorAll('#facts dd').length > 8")
        yield server, page


def fact(page, name):
    script = f"[...document.querySelectorAll('#facts div')].find((d) => d.firstChild.textContent === {name!r}).lastChild.textContent"
    return page.run(script)


def test_the_dashboard_follows_a_running_bench(dashboard):
    server, page = dashboard
    assert page.run("document.getElementById('no-connections').hidden") is False
    with subprocess.Popen(
        [BLIP, "bench", server.url, "--count", "2000000", "--in-flight", "64"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as bench:
        try:
            page.until("document.querySelectorAll('#connections tr').length === 1")
            first = page.until("document.querySelector('#connections tr td:nth-child(5)').textContent.replace(/\\D.*$/, '')")
            page.until(
                "Number(document.querySelector('#connections tr td:nth-child(5)').textContent.split(' / ')[0].replaceAll(',', ''))"
                f" > {int(first.replace(',', '')) + 1000}"
            )
            assert page.run("document.querySelector('#connections tr td:nth-child(2)').textContent") == "BLIP_3"
            page.until("document.querySelector('#messages-chart polyline').getAttribute('points').split(' ').length > 2")
            assert "in" in page.run("document.getElementById('messages-now').textContent")
            page.screenshot(SCREENSHOTS / "dashboard.png")
            page.resize(1200, 1000, dark=True)
            page.screenshot(SCREENSHOTS / "dashboard-dark.png")
            page.resize(390, 844)
            page.screenshot(SCREENSHOTS / "dashboard-phone.png")
            # Nothing but the table, which scrolls by itself, may be wider than a phone.
            assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        finally:
            bench.kill()
    page.until("document.querySelectorAll('#connections tr').length === 0")
    assert page.errors == []


def test_the_figures_are_those_of_the_server(dashboard):
    server, page = dashboard
    for _ in range(3):
        blip("request", server.url, "echo", "-d", "x")
    page.until("[...document.querySelectorAll('#facts dd')].some((d) => d.textContent.startsWith('0, 3 so far'))")
    assert fact(page, "Process") == str(server.process.pid)
    descriptors = int(fact(page, "Descriptors").split()[0])
    assert abs(descriptors - len(os.listdir(f"/proc/{server.process.pid}/fd"))) <= 2
    assert page.errors == []


def test_closing_a_connection_closes_it(dashboard):
    server, page = dashboard
    sleeper = subprocess.Popen([BLIP, "request", server.url, "sleep", "-p", "ms=60000"], stderr=subprocess.PIPE)
    try:
        page.until("document.querySelectorAll('#connections tr').length === 1")
        page.run("document.querySelector('#connections button').click()")
        _, errors = sleeper.communicate(timeout=30)
        assert sleeper.returncode != 0
        assert b"closed" in errors, errors
        page.until("document.querySelectorAll('#connections tr').length === 0")
    finally:
        if sleeper.poll() is None:
            sleeper.kill()
        sleeper.wait()
    assert page.errors == []


def test_a_row_stays_its_connections(dashboard):
    server, page = dashboard
    sleepers = []
    try:
        for number in (1, 2):
            sleepers.append(subprocess.Popen([BLIP, "request", server.url, "sleep", "-p", "ms=60000"], stderr=subprocess.DEVNULL))
            page.until(f"document.querySelectorAll('#connections tr').length === {number}")
        rows = "[...document.querySelectorAll('#connections tr')]"
        assert page.run(f"new Set({rows}.map((row) => row.dataset.id)).size") == 2
        page.run(f"window.kept = {rows}; 0")
        sleepers[0].kill()
        page.until("document.querySelectorAll('#connections tr').length === 1")
        assert page.run(f"window.kept.filter((row) => row.isConnected).length === 1 && window.kept.includes({rows}[0])")
        page.run(f"{rows}[0].querySelector('button').click()")
        assert sleepers[1].wait(timeout=30) != 0
    finally:
        for sleeper in sleepers:
            if sleeper.poll() is None:
                sleeper.kill()
            sleeper.wait()
    assert page.errors == []


def test_a_failure_is_told(dashboard):
    server, page = dashboard
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        raw.recv(1000)
    page.until("document.getElementById('errors').textContent.includes('bad HTTP request')")
    assert page.run("document.getElementById('no-errors').hidden")


def test_a_message_under_way_has_a_bar(dashboard, tmp_path):
    server, page = dashboard
    # A client that reads slowly: the response stays under way.
    client = subprocess.Popen(
        [BLIP, "request", server.url, "source", "-p", "size=500000000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        client.stdout.read(100_000)
        page.until("document.querySelectorAll('#messages progress').length >= 1")
        assert "response 1 to 127.0.0.1" in page.run("document.getElementById('messages').textContent")
    finally:
        client.kill()
        client.stdout.close()
        client.wait()
    page.until("document.querySelectorAll('#messages progress').length === 0")


def test_the_console_shows_replies_and_errors(dashboard):
    server, page = dashboard

    def send(profile, properties="", body=""):
        for name, value in (("profile", profile), ("properties", properties), ("body", body)):
            page.run(f"document.getElementById({name!r}).value = {json.dumps(value)}")
        page.run("document.getElementById('console').requestSubmit()")
        page.until("!['', 'sending'].includes(document.getElementById('reply-state').textContent)")
        return page.run("document.getElementById('reply-state').textContent"), page.run(
            "document.getElementById('reply').textContent"
        )

    state, reply = send("echo", "Flavour: vanilla\n", "hello <b>there</b>")
    assert state.startswith("answered in")
    assert "Flavour: vanilla" in reply and "hello <b>there</b>" in reply
    page.run("document.getElementById('reply-state').textContent = ''")
    state, _ = send("nobody")
    assert "BLIP 404" in state
    page.run("document.getElementById('reply-state').textContent = ''")
    state, _ = send("echo", "no colon")
    assert "is no property" in state
    page.screenshot(SCREENSHOTS / "console.png")
    assert page.errors == []


def test_the_dashboard_can_be_used_by_keyboard_and_heard(dashboard):
    _, page = dashboard
    unlabelled = page.run(
        "[...document.querySelectorAll('button, input, textarea, select, svg, progress')].filter((e) =>"
        " !e.textContent.trim() && !e.getAttribute('aria-label') && !e.labels?.length).map((e) => e.outerHTML)"
    )
    assert unlabelled == []
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('h1').length") == 1
    seen = []
    for _ in range(12):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        seen.append(page.run("document.activeElement.id || document.activeElement.tagName"))
    assert {"profile", "path", "subprotocol", "properties", "body", "BUTTON"} <= set(seen), seen


def test_it_says_when_the_server_is_gone_and_comes_back(page):
    with Server("--dashboard") as server:
        port = server.port
        page.open(http(server, "/dashboard/"))
        page.until("document.getElementById('state').textContent === 'live'")
        server.stop()
    page.until("document.getElementById('state').className === 'bad'")
    with Server("--dashboard", address=f"127.0.0.1:{port}"):
        page.until("document.getElementById('state').textContent === 'live'", seconds=60)


def test_other_pages_may_not_connect_to_the_dashboard(page, folder):
    with Server("--dashboard") as server, Server("--files", str(folder)) as other:
        page.open(http(other, "/-/blip/style.css"))
        url = server.url.rstrip("/") + "/dashboard/socket"
        result = page.run(
            "new Promise((done) => { const s = new WebSocket(%r, 'BLIP_3+Dashboard');"
            " s.onopen = () => done('open'); s.onerror = () => done('refused') })" % url
        )
        assert result == "refused"


def test_the_client_in_the_page_speaks_compressed(dashboard):
    server, page = dashboard
    text = page.run(
        """(async () => {
          const { connect } = await import('/-/blip/blip.js');
          const c = await connect(`ws://${location.host}/`);
          const replies = [];
          for (let i = 0; i < 20; i++) {
            const r = await c.request({ profile: 'source', properties: { size: '200000' } });
            replies.push(r.body.length);
          }
          await c.close();
          return JSON.stringify([...new Set(replies)]);
        })()"""
    )
    assert text == "[200000]"
    assert page.errors == []
