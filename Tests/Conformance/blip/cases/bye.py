"""The message "Bye" of BLIP 2."""

from ..peer import check
from ..trial import case
from ..wire import META, NO_REPLY, REPLY

SOURCE = "BLIP 2 §Closing; deployed peers answer 404"


@case("bye/answered", SOURCE, versions=2)
def answered(t):
    """Bye is answered with an empty reply; what comes behind is still answered, and the WebSocket is closed as ever."""
    with t.open() as peer:
        reply = peer.reply(peer.request("Bye", flags=META))
        if reply.kind != REPLY:
            peer.check_error(reply, "BLIP", "404")
            t.strict(False, "Bye is not known")
        check(not reply.body or reply.kind != REPLY, f"Bye was answered with {reply}")
        peer.check_alive()


@case("bye/no-reply", SOURCE, versions=2)
def no_reply(t):
    """Bye without reply gets none."""
    with t.open() as peer:
        peer.request("Bye", flags=META | NO_REPLY)
        peer.silence()
        peer.check_alive()


@case("bye/other", SOURCE, versions=2)
def other(t):
    """Other messages of the protocol itself are not known, and never given to handlers of their profile."""
    with t.open() as peer:
        for profile in ("Hi", "echo", None):
            peer.check_error(peer.reply(peer.request(profile, flags=META)), "BLIP", "404")
        peer.check_alive()


@case("bye/handler", SOURCE, "server", versions=2)
def handler(t):
    """Bye without the flag Meta is a request like others."""
    with t.open() as peer:
        peer.check_error(peer.reply(peer.request("Bye")), "BLIP", "404")
        peer.check_alive()
