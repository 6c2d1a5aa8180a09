"""Cases, and what one run of a case has at hand."""

import base64
import os
import shlex
import socket
import subprocess
import tempfile
import time
import traceback
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import stream
from .peer import Enough, Failed, Peer, check
from .stream import StreamPeer
from .websocket import Ended, WebSocket, accept_of
from .wire import NO_REPLY

ROLES = ("server", "client")
CASES = []


class Skipped(Exception):
    """The case cannot be run with this implementation."""


@dataclass
class Case:
    name: str
    function: object
    source: str
    roles: tuple
    versions: tuple

    @property
    def title(self):
        return " ".join(self.function.__doc__.split())


def case(name, source, roles=ROLES, versions=(3, 2)):
    """Registers a case. `source` says where its rule comes from, `roles` which role the tested side may have."""

    def register(function):
        roles_ = (roles,) if isinstance(roles, str) else roles
        versions_ = (versions,) if isinstance(versions, int) else versions
        CASES.append(Case(name, function, source, roles_, versions_))
        return function

    return register


@dataclass
class Settings:
    """What is tested and how it is reached."""

    role: str
    url: str = ""
    command: str = ""
    many: str = ""
    options: dict = None
    subprotocols: dict = None
    timeout: float = 8.0
    only_path: bool = False


class Trial:
    def __init__(self, settings, version):
        self.settings, self.version, self.role = settings, version, settings.role
        self.timeout = settings.timeout
        self.notes = []
        self.failures = []
        self.peers = []
        self.processes = []
        self.listener = None
        self.scratch = None
        self.outputs = []

    # Verdicts.

    def strict(self, condition, text):
        """What peers cope with, but ought to be otherwise."""
        if not condition and text not in self.notes:
            self.notes.append(text)

    def broken(self, text):
        if text not in self.failures:
            self.failures.append(text)

    # Opening.

    @property
    def subprotocol(self):
        return self.settings.subprotocols[self.version]

    @property
    def all_subprotocols(self):
        names = self.settings.subprotocols
        return [names[version] for version in sorted(names, reverse=True) if version > 1]

    def open(self, **options):
        """A conversation. With a client under test, it has sent a request that waits for its reply. Large messages
        are acknowledged if `acknowledges` is not False."""
        if self.version == 1:
            return self.open_stream(**options)
        acknowledges = options.pop("acknowledges", True)
        if self.role == "server":
            connection, head = self.upgrade([self.subprotocol], **options)
            check(head.status == 101, f"the upgrade was refused: {head.first}")
            connection.begin()
            return self.talk(connection, acknowledges)
        wait = options.pop("wait", True)
        connection, head = self.accept(**options)
        connection.write(self.switch(head))
        connection.begin()
        peer = self.talk(connection, acknowledges)
        if wait:
            peer.wait(lambda: peer.frames, "the client sends nothing")
        return peer

    def open_stream(self, **options):
        """The same on a bare stream; a client under test may not have spoken yet."""
        if self.role == "server":
            parts = urlsplit(self.settings.url)
            connection = socket.create_connection((parts.hostname, parts.port or 80), self.timeout)
        else:
            self.start(**options)
            connection = self.take_socket()
        peer = StreamPeer(self, connection)
        self.peers.append(peer)
        return peer

    def talk(self, connection, acknowledges=True):
        peer = Peer(self, connection, self.version, acknowledges)
        self.peers.append(peer)
        return peer

    # A server under test.

    def connect(self):
        parts = urlsplit(self.settings.url)
        connection = socket.create_connection((parts.hostname, parts.port or 80), self.timeout)
        web = WebSocket(connection, True)
        self.peers.append(web)
        return web

    def request_head(self, protocols, path=None, method="GET", version="HTTP/1.1", **changes):
        """An upgrade request and its key. `changes` replace header lines (None: leave out; a list: several lines)."""
        parts = urlsplit(self.settings.url)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = {
            "Host": parts.netloc,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Protocol": ",".join(protocols) or None,
        }
        lines |= {name.replace("_", "-"): value for name, value in changes.items()}
        head = f"{method} {path or parts.path or '/'} {version}\r\n"
        for name, value in lines.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    head += f"{name}: {one}\r\n"
        return (head + "\r\n").encode(), key

    def upgrade(self, protocols, early=b"", segment=None, **changes):
        """Asks a server for the upgrade; the connection and its answer."""
        head, key = self.request_head(protocols, **changes)
        connection = self.connect()
        connection.write(head + early, segment)
        answer = connection.read_head(self.timeout)
        if answer.status == 101:
            check(answer.all("Sec-WebSocket-Accept") == [accept_of(key)], "Sec-WebSocket-Accept is wrong")
        return connection, answer

    def has_profile(self, profile, version=None):
        """Whether the server under test has a handler for a profile; asked once."""
        known = self.settings.__dict__.setdefault("profiles", {})
        if profile not in known and self.version == 1:
            with self.open() as peer:
                reply = peer.reply(peer.request(profile, [("size", "0"), ("ms", "0")]))
                known[profile] = reply.property("Error-Code") != "404" or reply.property("Error-Domain") != "BLIP"
        elif profile not in known:
            connection, head = self.upgrade([self.subprotocol])
            check(head.status == 101, f"the upgrade was refused: {head.first}")
            connection.begin()
            peer = self.talk(connection)
            reply = peer.reply(peer.request(profile, [("size", "0"), ("ms", "0")]))
            known[profile] = reply.property("Error-Code") != "404" or reply.property("Error-Domain") != "BLIP"
            connection.close()
        return known[profile]

    def need(self, *profiles):
        for profile in profiles:
            if not self.has_profile(profile):
                raise Skipped(f"the server has no profile {profile}")

    # A client under test.

    def start(self, body=b"hello", flags=(), profile="echo", many=None, **values):
        """Starts the client so that it connects to us."""
        self.let_go()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.scratch = tempfile.TemporaryDirectory(prefix="blip-conformance-")
        path = os.path.join(self.scratch.name, "body")
        with open(path, "wb") as file:
            file.write(body)
        template = self.settings.many if many else self.settings.command
        if not template:
            raise Skipped("no command for this is given")
        options = []
        for flag in flags:
            if flag not in self.settings.options:
                raise Skipped(f"no option for {flag} is given")
            options += shlex.split(self.settings.options[flag])
        port = self.listener.getsockname()[1]
        values |= {
            "url": f"ws://127.0.0.1:{port}/conformance" if self.version > 1 else f"blip://127.0.0.1:{port}",
            "profile": profile,
            "body": path,
            "count": many or 0,
        }
        values.setdefault("size", 100)
        values.setdefault("in_flight", 16)
        command = []
        for word in shlex.split(template):
            command += options if word == "{options}" else [word.format(**values)]
        # Files, so that a client that says much does not wait for us.
        self.outputs = [open(os.path.join(self.scratch.name, name), "w+b") for name in ("out", "err")]
        self.processes.append(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.outputs[0], stderr=self.outputs[1])
        )

    def accept(self, **options):
        """Starts the client and takes its connection and upgrade request."""
        self.start(**options)
        return self.take_connection()

    def take_socket(self):
        self.listener.settimeout(self.timeout)
        try:
            connection, _ = self.listener.accept()
        except TimeoutError:
            raise Failed("the client does not connect") from None
        return connection

    def take_connection(self):
        web = WebSocket(self.take_socket(), False)
        self.peers.append(web)
        return web, web.read_head(self.timeout)

    def switch(self, head, protocol=None, status="101 Switching Protocols", extra="", **changes):
        """The answer to a client's upgrade; `changes` replace header lines (None: leave out; a list: several)."""
        lines = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept_of(head.get("Sec-WebSocket-Key") or ""),
            "Sec-WebSocket-Protocol": protocol or self.subprotocol,
        }
        lines |= {name.replace("_", "-"): value for name, value in changes.items()}
        text = f"HTTP/1.1 {status}\r\n"
        for name, value in lines.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    text += f"{name}: {one}\r\n"
        return (text + extra + "\r\n").encode()

    def answer_rest(self, peer):
        """Answers what the client still waits for, with empty replies, until it closes."""

        def work():
            for message in peer.requests:
                if message.number not in peer.answered and not message.flags & NO_REPLY:
                    peer.answered.add(message.number)
                    if (True, message.number) not in peer.sent:
                        peer.respond(message.number)
            return peer.socket.close_code is not None

        peer.pump(work)

    def client_result(self, timeout=None):
        """Exit status, output and error output of the client, which has to end by itself."""
        process = self.processes[-1]
        try:
            process.wait(timeout or self.timeout + 5)
        except subprocess.TimeoutExpired:
            raise Failed("the client does not end") from None
        check(process.returncode >= 0 and process.returncode < 128, f"the client died: status {process.returncode}")
        for file in self.outputs:
            file.seek(0)
        out, err = (file.read() for file in self.outputs)
        return process.returncode, out, err.decode(errors="replace")

    def end_client(self, peer, failed):
        if self.role != "client" or getattr(peer, "result", None):
            return
        peer.result = self.client_result()
        if failed:
            check(peer.result[0] != 0, "the client ended with status 0 although its request failed")
            self.strict(peer.result[2].strip(), "the client failed without a word on standard error")
        elif not getattr(peer, "expects_failure", False):
            check(peer.result[0] == 0, f"the client ended with status {peer.result[0]}: {peer.result[2].strip()}")

    # Ending.

    def release(self, peer):
        peer.socket.close()

    def end(self):
        for peer in self.peers:
            (peer.socket if isinstance(peer, Peer) else peer).close()
        self.let_go()

    def let_go(self):
        """Ends what belongs to the last client."""
        if self.listener:
            self.listener.close()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for file in self.outputs:
            file.close()
        if self.scratch:
            self.scratch.cleanup()
        self.processes, self.outputs, self.scratch = [], [], None

    def check_survival(self):
        """A server still takes connections and answers."""
        if self.role != "server":
            return
        with self.open() as peer:
            peer.check_alive()


def run_case(case, settings, version):
    """(outcome, text) of one case: PASS, NON-STRICT, FAIL or SKIP."""
    trial = Trial(settings, version)
    started = time.monotonic()
    outcome = "PASS"
    texts = []
    try:
        try:
            case.function(trial)
        except Enough:
            pass
        trial.check_survival()
    except Skipped as skipped:
        outcome, texts = "SKIP", [str(skipped)]
    except (Failed, Ended, stream.Failed) as failed:
        texts.append(str(failed))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        texts.append(f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})")
    finally:
        trial.end()
    texts += trial.failures
    if texts and outcome != "SKIP":
        outcome = "FAIL"
    elif trial.notes and outcome == "PASS":
        outcome = "NON-STRICT"
    if outcome != "SKIP":
        texts += trial.notes
    return outcome, "; ".join(texts[:4]), time.monotonic() - started
