"""Pausing at 128,000 unacknowledged bytes, by the implementation under test as sender."""

from ..peer import WINDOW, check
from ..trial import case
from ..wire import ACK_REPLY, ACK_REQUEST, COMPRESSED, MORE, REPLY, REQUEST
from .frames import body_of

SOURCE = "BLIP 3 §Flow Control; LiteCore pauses at 128,000, go-blip above"


class Stream:
    """A large message that the implementation under test is sending, and its acknowledgements, which we make."""

    def __init__(self, trial, peer, size, flags=0):
        self.trial, self.peer = trial, peer
        self.acknowledged = 0
        if trial.role == "server":
            self.body = b"".join(b"%015d\n" % index for index in range(size // 16))
            if trial.has_profile("source"):
                self.number = peer.request("source", [("size", str(len(self.body)))], flags=flags)
            else:
                self.number = self.send_for_echo(flags)
            self.key, self.kind = (True, self.number), ACK_REPLY
        else:
            self.number, self.key, self.kind = 1, (False, 1), ACK_REQUEST

    def send_for_echo(self, flags):
        number = self.peer.new_number()
        content = self.peer.codec.content([("Profile", "echo")], self.body, flags)
        for piece, more in self.peer.pieces(content, (16_000,)):
            self.peer.send_frame(number, REQUEST | flags | (MORE if more else 0), piece)
            if more:
                self.peer.wait_for_window((False, number))
        return number

    @property
    def assembly(self):
        return self.peer.incoming.get(self.key)

    @property
    def wire(self):
        return self.assembly.wire if self.assembly else 0

    def settle(self):
        """Waits until nothing more comes of it."""
        while True:
            before = self.wire
            self.peer.pump(lambda b=before: self.wire > b or self.assembly and self.assembly.message, 0.4)
            if self.wire == before or self.assembly.message:
                return self.wire

    def acknowledge(self, count):
        self.acknowledged = max(self.acknowledged, count)
        self.peer.acknowledge(self.number, count, self.kind)

    def run_to_end(self):
        """Acknowledges as it comes until the message is whole."""
        while not (self.assembly and self.assembly.message):
            before = self.wire
            if before - self.acknowledged >= 50_000 or before - self.acknowledged >= WINDOW - 40_000:
                self.acknowledge(before)
            self.peer.wait(lambda b=before: self.wire > b or self.assembly.message, f"it stopped at {before} bytes")
        return self.assembly.message


def begin(trial, size=1_000_000, flags=0, names=()):
    if trial.role == "server":
        trial.need("echo")
        peer = trial.open(acknowledges=False)
        return peer, Stream(trial, peer, size, flags)
    body = body_of(size)
    peer = trial.open(body=body, flags=names, acknowledges=False)
    stream = Stream(trial, peer, size)
    stream.body = body
    return peer, stream


def check_paused(trial, stream):
    """It has stopped, with the window full and no more than a frame above."""
    wire = stream.settle()
    unacknowledged = wire - stream.acknowledged
    check(stream.assembly and not stream.assembly.message, "the message came whole without acknowledgements")
    last = stream.assembly.frames[-1].wire_size
    check(unacknowledged >= WINDOW, f"it paused at {unacknowledged} unacknowledged bytes")
    check(unacknowledged <= WINDOW + 32_768 + last, f"it sent {unacknowledged} bytes without acknowledgement")
    trial.strict(unacknowledged - last < WINDOW, f"it paused one frame late, at {unacknowledged} bytes")


def finish(peer, stream):
    message = stream.run_to_end()
    check(message.body == stream.body, f"{len(message.body)} bytes of {len(stream.body)} came, not the same")
    if stream.key[0] is False:
        peer.acknowledges = True


@case("window/pause", SOURCE)
def pause(t):
    """A message pauses with the frame that makes 128,000 bytes unacknowledged, again and again."""
    peer, stream = begin(t)
    with peer:
        for _ in range(3):
            check_paused(t, stream)
            stream.acknowledge(stream.wire)
            peer.pump(lambda: stream.wire > stream.acknowledged)
        finish(peer, stream)


@case("window/resume", SOURCE + "; BLIP-Cocoa resumes with any acknowledgement")
def resume(t):
    """It goes on once fewer than 128,000 bytes are unacknowledged, not before."""
    peer, stream = begin(t)
    with peer:
        check_paused(t, stream)
        paused = stream.wire
        stream.acknowledge(paused - WINDOW)
        stream.settle()
        t.strict(stream.wire == paused, "it went on with 128,000 bytes unacknowledged")
        paused = stream.wire
        stream.acknowledge(paused - WINDOW + 1)
        stream.settle()
        check(stream.wire > paused, "it does not go on with 127,999 bytes unacknowledged")
        finish(peer, stream)


@case("window/odd-acknowledgements", "LiteCore ignores counts above what was sent; go-blip takes any")
def odd_acknowledgements(t):
    """Counts that fall, repeat or exceed what was sent, and those of the other direction, do not count."""
    peer, stream = begin(t)
    with peer:
        check_paused(t, stream)
        stream.acknowledge(40_000)
        stream.settle()
        check_paused(t, stream)
        paused = stream.wire
        other = ACK_REQUEST if stream.kind == ACK_REPLY else ACK_REPLY
        peer.acknowledge(stream.number, 20_000, stream.kind)
        peer.acknowledge(stream.number, 40_000, stream.kind)
        peer.acknowledge(stream.number, paused + 1, stream.kind)
        peer.acknowledge(stream.number, (1 << 64) - 1, stream.kind)
        peer.acknowledge(stream.number, paused, other)
        peer.acknowledge(stream.number + 1, paused, stream.kind)
        stream.settle()
        t.strict(stream.wire == paused, f"{stream.wire - paused} more bytes came after acknowledgements that are none")
        finish(peer, stream)


@case("window/compressed", SOURCE + ": bytes as transmitted", versions=3)
def compressed(t):
    """Of a compressed message, the compressed bytes count."""
    peer, stream = begin(t, 3_000_000, COMPRESSED, ("compressed",))
    with peer:
        check_paused(t, stream)
        finish(peer, stream)


@case("window/others-go-on", "BLIP 3 §Flow Control: for each message")
def others_go_on(t):
    """While a message is paused, others pass, and the connection answers."""
    peer, stream = begin(t)
    with peer:
        check_paused(t, stream)
        for _ in range(3):
            peer.check_alive()
        if t.role == "server":
            second = Stream(t, peer, 1_000_000)
            check_paused(t, second)
            finish(peer, second)
        finish(peer, stream)


@case("window/generous-peer", "LiteCore: after 50,000 bytes, with any frame, first and last ones too")
def generous_peer(t):
    """Acknowledgements of every frame, the first and last included, are fine."""
    peer, stream = begin(t, 400_000)
    with peer:
        while not (stream.assembly and stream.assembly.message):
            before = stream.wire
            peer.wait(lambda b=before: stream.wire > b, f"it stopped at {before} bytes")
            stream.acknowledge(stream.wire)
        check(stream.assembly.message.body == stream.body, "the body came changed")
        peer.acknowledges = True


@case("window/early-acknowledgements", SOURCE, "server")
def early_acknowledgement(t):
    """An acknowledgement that comes while the message is still flowing is not forgotten."""
    t.need("source")
    with t.open() as peer:
        for _ in range(5):
            number = peer.request("source", [("size", "800000")])
            reply = peer.reply(number, 20)
            check(reply.kind == REPLY and len(reply.body) == 800_000, f"{reply}")
