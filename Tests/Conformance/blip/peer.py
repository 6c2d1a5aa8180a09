"""One BLIP conversation with the implementation under test, and what must hold in every conversation."""

import time

from .websocket import BINARY, FORBIDDEN_CODES, Ended
from .wire import (
    ACK_REPLY,
    ACK_REQUEST,
    COMPRESSED,
    ERROR,
    META,
    MORE,
    NO_REPLY,
    REPLY,
    REQUEST,
    URGENT,
    Codec,
    WireError,
    read_varint,
    varint,
)

ACK_INTERVAL = 50_000
WINDOW = 128_000


class Failed(Exception):
    """The implementation under test does not do what the case wants."""


class Enough(Exception):
    """The case ends here: the implementation went another way, which its notes tell."""


def check(condition, text):
    if not condition:
        raise Failed(text)


class Assembly:
    """A message that is coming in."""

    def __init__(self, frame):
        self.flags = frame.flags
        self.kind = frame.kind
        self.frames = []
        self.content = bytearray()
        self.wire = 0
        self.acknowledged = 0
        self.message = None


class Sent:
    """A message of ours that is going out: where its frames end, as acknowledgements count."""

    def __init__(self, flags):
        self.flags = flags
        self.ends = [0]
        self.is_last_sent = False
        self.acknowledgements = []


class Peer:
    def __init__(self, trial, socket, version, acknowledges=True):
        self.trial, self.socket, self.codec, self.version = trial, socket, Codec(version), version
        self.next_number = 1
        self.frames = []
        self.incoming = {}
        self.sent = {}
        self.requests = []
        self.acknowledges = acknowledges
        self.answered = set()
        self.fatal = False
        self.seen_request = 0
        self.order = []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.finish()
                self.judge()
        finally:
            self.trial.release(self)
        return False

    # Sending.

    def frame(self, number, flags, content=b"", wire=None):
        """Makes a frame and books it; it has to be sent before the next one is made."""
        data = self.codec.frame(number, flags, content, wire)
        kind = flags & 7
        if kind <= ERROR:
            key = (kind != REQUEST, number)
            if key not in self.sent:
                self.sent[key] = Sent(flags)
            header = len(varint(number) + varint(flags))
            self.sent[key].ends.append(self.sent[key].ends[-1] + len(data) - header)
            self.sent[key].is_last_sent = not flags & MORE
        return data

    def send_frame(self, number, flags, content=b"", wire=None, segment=None):
        self.socket.send(self.frame(number, flags, content, wire), segment=segment)

    def new_number(self):
        self.next_number += 1
        return self.next_number - 1

    def pieces(self, content, sizes):
        """Cuts a message's bytes: (piece, whether more follows). The last size repeats."""
        index = start = 0
        while True:
            size = sizes[min(index, len(sizes) - 1)]
            piece, start, index = content[start : start + size], start + size, index + 1
            yield piece, start < len(content)
            if start >= len(content):
                return

    def make(self, number, kind, properties=(), body=b"", flags=0, sizes=(4000,), content=None):
        """The frames of a message."""
        if content is None:
            content = self.codec.content(properties, body, flags)
        return [
            self.frame(number, kind | flags | (MORE if more else 0), piece)
            for piece, more in self.pieces(content, sizes)
        ]

    def request(self, profile, properties=(), body=b"", flags=0, sizes=(4000,)):
        """Sends a request and returns its number."""
        number = self.new_number()
        first = [("Profile", profile)] if profile is not None else []
        self.socket.send_all(self.make(number, REQUEST, [*first, *properties], body, flags, sizes))
        return number

    def respond(self, number, properties=(), body=b"", flags=0, sizes=(4000,), kind=REPLY):
        """Answers a request of the implementation under test, heeding the window."""
        content = self.codec.content(properties, body, flags)
        for piece, more in self.pieces(content, sizes):
            self.send_frame(number, kind | flags | (MORE if more else 0), piece)
            if more:
                self.wait_for_window((True, number))

    def wait_for_window(self, key):
        sent = self.sent[key]
        self.wait(
            lambda: sent.ends[-1] - max(sent.acknowledgements, default=0) < WINDOW,
            f"acknowledgements stopped at {sent.acknowledgements[-1:]} of {sent.ends[-1]} bytes",
        )

    def acknowledge(self, number, count, kind=ACK_REPLY, flags=URGENT | NO_REPLY):
        self.socket.send(varint(number) + varint(kind | flags) + varint(count))

    # Receiving.

    def _take(self):
        while self.socket.messages:
            opcode, data = self.socket.messages.pop(0)
            if opcode != BINARY:
                self.trial.broken("a text message: BLIP frames are binary")
            try:
                frame = self.codec.read(data)
                self._frame(frame)
            except WireError as error:
                raise Failed(f"it sent {error}") from None

    def _frame(self, frame):
        trial = self.trial
        self.frames.append(frame)
        trial.strict(frame.size <= 16384, f"{frame} is above 16,384 bytes")
        if frame.size > 32768:
            trial.broken(f"{frame} is above the 32,768 bytes that go-blip takes")
        if frame.kind in (ACK_REQUEST, ACK_REPLY):
            return self._acknowledgement(frame)
        if frame.kind > ERROR:
            return trial.broken(f"{frame} is of an unknown type")
        trial.strict(not frame.flags & META, f"{frame} has an undefined flag")
        if self.version == 3:
            trial.strict(not frame.flags & COMPRESSED or frame.body_size > 0, f"{frame} is compressed but empty")
        key = (frame.kind != REQUEST, frame.number)
        assembly = self.incoming.get(key)
        if assembly is None or assembly.message is not None:
            self._check_first(frame, assembly)
            assembly = self.incoming[key] = Assembly(frame)
        else:
            trial.strict(frame.content or frame.body_size, f"{frame} continues a message, but is empty")
        self.order.append(key)
        assembly.frames.append(frame)
        assembly.content += frame.content
        assembly.wire += frame.wire_size
        if not frame.more:
            content = bytes(assembly.content)
            assembly.message = self.codec.message(frame.number, frame.kind, assembly.flags, content)
            if frame.kind == REQUEST:
                self.requests.append(assembly.message)
        elif self.acknowledges:
            before = assembly.wire - frame.wire_size
            if before // ACK_INTERVAL < assembly.wire // ACK_INTERVAL:
                kind = ACK_REQUEST if frame.kind == REQUEST else ACK_REPLY
                assembly.acknowledged = assembly.wire
                if not self.socket.close_sent and self.socket.close_code is None:
                    self.acknowledge(frame.number, assembly.wire, kind)

    def _check_first(self, frame, finished):
        trial = self.trial
        try:
            read_varint(frame.content)
        except WireError:
            trial.broken(f"the first frame, {frame}, does not hold the whole length of the properties")
        if frame.kind == REQUEST:
            if frame.number != self.seen_request + 1:
                trial.broken(f"request {frame.number} follows on request {self.seen_request}")
            self.seen_request = max(frame.number, self.seen_request)
            return
        sent = self.sent.get((False, frame.number))
        if finished is not None:
            trial.broken(f"a second reply to request {frame.number}: {frame}")
        elif sent is None:
            trial.broken(f"a reply to request {frame.number}, which was never sent")
        elif not sent.is_last_sent:
            trial.broken(f"{frame} came before the last frame of its request")
        elif sent.flags & NO_REPLY:
            trial.broken(f"{frame} answers a request that wants no reply")
        else:
            trial.strict(not frame.flags & NO_REPLY, f"{frame} is a reply with the flag NoReply")
            trial.strict(frame.flags & URGENT == sent.flags & URGENT, f"{frame} does not inherit Urgent of its request")

    def _acknowledgement(self, frame):
        trial = self.trial
        trial.strict(frame.flags & ~7 == URGENT | NO_REPLY, f"{frame} has unusual flags")
        sent = self.sent.get((frame.kind == ACK_REPLY, frame.number))
        if sent is None:
            return trial.broken(f"{frame} acknowledges a message that was never sent")
        if sent.acknowledgements and frame.count <= sent.acknowledgements[-1]:
            trial.broken(f"{frame} acknowledges {frame.count} after {sent.acknowledgements[-1]}")
        if frame.count not in sent.ends:
            trial.broken(f"{frame} acknowledges {frame.count} bytes, where no frame ends")
        sent.acknowledgements.append(frame.count)

    def pump(self, until, timeout=None):
        def condition():
            self._take()
            return until()

        return self.socket.pump(condition, self.trial.timeout if timeout is None else timeout)

    def wait(self, until, text, timeout=None):
        if self.pump(until, timeout):
            return
        if self.socket.close_code is not None:
            reason = self.socket.close_reason.decode(errors="replace")
            raise Failed(f"{text}: it closed with {self.socket.close_code} {reason!r}")
        raise Failed(f"{text}: {'it ended the connection' if self.socket.is_ended else 'time is up'}")

    def reply(self, number, timeout=None):
        """The whole reply to a request."""
        key = (True, number)
        self.wait(lambda: key in self.incoming and self.incoming[key].message, f"no reply to request {number}", timeout)
        return self.incoming[key].message

    def reply_or_end(self, number):
        """The reply, where closing the connection is another way that peers go."""
        self.pump(lambda: self.is_over() or self.has_whole_reply(number))
        if not self.has_whole_reply(number):
            self.note_end()
        return self.reply(number)

    def is_over(self):
        return self.socket.close_code is not None or self.socket.is_ended

    def note_end(self):
        if self.is_over():
            self.trial.strict(False, f"it closed the connection ({self.socket.close_code})")
            raise Enough

    def has_whole_reply(self, number):
        return self.has_reply(number) and self.incoming[(True, number)].message is not None

    def has_reply(self, number):
        return (True, number) in self.incoming

    def wait_request(self, count=1, timeout=None):
        """The count-th whole request of the implementation under test."""
        self.wait(lambda: len(self.requests) >= count, f"request {count} has not come", timeout)
        return self.requests[count - 1]

    def silence(self, seconds=0.3):
        """Nothing comes for a while but acknowledgements."""
        count = len([frame for frame in self.frames if frame.kind <= ERROR])
        self.pump(lambda: self.socket.close_code is not None, seconds)
        check(self.socket.close_code is None, f"it closed with {self.socket.close_code} {self.socket.close_reason!r}")
        check(not self.socket.is_ended, "it ended the connection")
        new = [frame for frame in self.frames if frame.kind <= ERROR][count:]
        check(not new, f"it sent {new[0] if new else ''}")

    # What a case can end with.

    def check_alive(self):
        """Both directions still work: a request without handler is answered with ERR BLIP/404."""
        number = self.request("conformance/no-such-profile")
        reply = self.reply(number)
        self.check_error(reply, "BLIP", "404")

    def check_error(self, reply, domain, code):
        check(reply.kind == ERROR, f"an error was due, not {reply}")
        found = reply.property("Error-Domain"), reply.property("Error-Code")
        check(found == (domain, code), f"an error {domain}/{code} was due, not {found[0]}/{found[1]}")

    def expect_failed_request(self, number, *codes):
        """The request is answered with an error of the domain BLIP and nothing else suffers. Peers are known that
        close the connection instead."""
        reply = self.reply_or_end(number)
        check(reply.kind == ERROR, f"an error was due, not {reply}")
        self.trial.strict(reply.property("Error-Domain") == "BLIP", f"domain {reply.property('Error-Domain')}")
        self.trial.strict(reply.property("Error-Code") in codes, f"code {reply.property('Error-Code')}, not {codes}")
        self.check_alive()

    def expect_fatal(self, *codes, strict=True):
        """The connection is closed, with one of these codes."""
        self.fatal = True
        try:
            done = self.pump(lambda: self.socket.close_code is not None or self.socket.is_ended)
        except Failed as error:
            raise Failed(f"the connection had to be closed, but {error}") from None
        check(done, "the connection had to be closed, but it stays open")
        code = self.socket.close_code
        if code is None:
            return self.trial.strict(False, "it ended the connection without a close frame")
        check(code not in FORBIDDEN_CODES, f"it put close code {code} on the wire")
        if strict:
            self.trial.strict(code in codes, f"it closed with {code}, not {' or '.join(map(str, codes))}")
        self.end_closing()

    def end_closing(self):
        """Answers its close frame; then the TCP connection ends."""
        if not self.socket.close_sent:
            try:
                self.socket.send_close(self.socket.close_code or 1000)
            except Ended:
                pass
        if not self.socket.is_client:
            self.socket.end_output()
        self.pump(lambda: self.socket.is_ended, 5)
        self.trial.strict(self.socket.is_ended, "the TCP connection stays open after the close handshake")

    def finish(self):
        """The orderly end of a conversation that nothing has ended yet."""
        if self.fatal or self.socket.is_ended:
            return self.trial.end_client(self, failed=True)
        if self.trial.role == "client":
            self.trial.answer_rest(self)
            self.wait(lambda: self.socket.close_code is not None, "the client does not close after its reply")
            check(self.socket.close_code not in FORBIDDEN_CODES, f"close code {self.socket.close_code}")
            self.trial.strict(
                self.socket.close_code in (0, 1000, 1001), f"the client closed with {self.socket.close_code}"
            )
            self.end_closing()
            return self.trial.end_client(self, failed=False)
        if self.socket.close_code is None:
            self.socket.send_close(1000)
            self.wait(lambda: self.socket.close_code is not None, "the close frame is not answered")
            self.trial.strict(
                self.socket.close_code in (0, 1000), f"close 1000 was answered with {self.socket.close_code}"
            )
            self.end_closing()
        return None

    def judge(self):
        for fault in self.socket.faults:
            self.trial.broken(f"it sent {fault}")
        if self.socket.after_close:
            self.trial.strict(False, f"{self.socket.after_close} frames came behind its close frame")

    def drain(self, seconds):
        end = time.monotonic() + seconds
        self.pump(lambda: time.monotonic() >= end, seconds)
