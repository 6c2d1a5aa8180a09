"""Which frame comes next: turns, urgent messages, small frames."""

from ..peer import check
from ..trial import case
from ..wire import MORE, REQUEST, URGENT

SOURCE = "BLIP 3 §Sending: the queue of messages"


def start_all(trial, peer, wishes):
    """Requests for bodies of these sizes, sent in one segment; (size, flags) each. Their numbers."""
    frames, numbers = [], []
    for size, flags in wishes:
        number = peer.new_number()
        numbers.append(number)
        frames += peer.make(number, REQUEST, [("Profile", "source"), ("size", str(size))], b"", flags)
    peer.socket.send_all(frames)
    for number in numbers:
        check(len(peer.reply(number).body) == wishes[numbers.index(number)][0], f"reply {number} has another size")
    return numbers


@case("queue/turns", SOURCE, "server")
def turns(t):
    """Messages take turns, frame by frame."""
    t.need("source")
    with t.open() as peer:
        first, second = start_all(t, peer, [(120_000, 0), (120_000, 0)])
        order = [number for _, number in peer.order]
        overlap = order[order.index(second) : len(order) - order[::-1].index(first)]
        check(len(overlap) > 2, f"no turns: {order}")
        t.strict(all(one != other for one, other in zip(overlap, overlap[1:])), f"the frames came in the order {order}")


@case("queue/urgent", SOURCE, "server")
def urgent(t):
    """An urgent message passes others that are under way: one of their frames between two of its own."""
    t.need("source")
    with t.open() as peer:
        one, two, fast = start_all(t, peer, [(120_000, 0), (120_000, 0), (100_000, URGENT)])
        order = [number for _, number in peer.order]
        end = len(order) - 1 - order[::-1].index(fast)
        for other in (one, two):
            check(order[end + 1 :].count(other) > 0, f"urgent message {fast} did not pass {other}: {order}")
        start = order.index(fast)
        between = order[start : end + 1]
        t.strict(
            len(between) <= 2 * between.count(fast), f"more than one frame between those of the urgent one: {between}"
        )
        gaps = [a == b for a, b in zip(between, between[1:])]
        t.strict(not any(gaps), f"no frame between two of the urgent one: {between}")


@case("queue/small-frames", SOURCE + ": 4,096 bytes while an urgent message is next", "server")
def small_frames(t):
    """While an urgent message is next in the queue, others send frames of at most 4,096 bytes."""
    t.need("source")
    with t.open() as peer:
        one, two, fast = start_all(t, peer, [(120_000, 0), (120_000, 0), (100_000, URGENT)])
        frames = [frame for frame in peer.frames if frame.kind == 1]
        sizes = [
            before.size for before, after in zip(frames, frames[1:]) if after.number == fast and before.number != fast
        ]
        check(sizes, "no frame came before those of the urgent message")
        t.strict(max(sizes[1:] or sizes) <= 4096, f"frames before urgent ones have {sizes} bytes")
        t.strict(
            max(frame.size for frame in frames if frame.number == fast) > 4096, "the urgent message has small frames"
        )
        rest = [frame.size for frame in frames if frame.number in (one, two)][-4:-2]
        t.strict(not rest or max(rest) > 4096, "frames stay small when the urgent message is through")


@case("queue/two-urgent", SOURCE, "server")
def two_urgent(t):
    """Urgent messages do not starve the others: normal frames keep coming."""
    t.need("source")
    with t.open() as peer:
        slow, *fast = start_all(t, peer, [(120_000, 0), (110_000, URGENT), (110_000, URGENT)])
        order = [number for _, number in peer.order]
        end = min(len(order) - 1 - order[::-1].index(number) for number in fast)
        check(order[:end].count(slow) > 1, f"the normal message starves: {order}")


@case("queue/acks-first", "go-blip, LiteCore: acknowledgements go ahead of the queue", "server")
def acks_first(t):
    """Acknowledgements are sent while replies are under way, and do not wait for their end."""
    t.need("source", "sink")
    with t.open() as peer:
        source = peer.request("source", [("size", "3000000")])
        number = peer.new_number()
        content = peer.codec.content([("Profile", "sink")], bytes(400_000))
        for piece, more in peer.pieces(content, (16_000,)):
            peer.send_frame(number, REQUEST | (MORE if more else 0), piece)
            if more:
                peer.wait_for_window((False, number))
        check(peer.reply(number).body == b"400000", "the count is wrong")
        check(len(peer.reply(source, 30).body) == 3_000_000, "the source has another size")
