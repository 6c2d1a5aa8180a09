"""Runs Autobahn's cases against an echo server, or serves them to an echo client. Started by run.py, in the
environment that install.py makes.

    fuzz.py server URL CASES RESULTS      connects to an echo server once for each case
    fuzz.py client CASES RESULTS          prints "listening on URL" and waits for an echo client, which asks
                                          /getCaseCount, then /runCase?case=N for N from 1, then /updateReports

CASES are ids with wildcards, separated by commas. RESULTS becomes a JSON file: for each case its verdicts and, where
they are not the best, what went over the wire.
"""

import fnmatch
import json
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import txaio

txaio.use_twisted()

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(sys.prefix)))

from autobahn.twisted.websocket import (  # noqa: E402
    WebSocketClientFactory,
    WebSocketClientProtocol,
    WebSocketServerFactory,
    WebSocketServerProtocol,
)
from cases import Cases  # noqa: E402
from cases.case import Case  # noqa: E402
from twisted.internet import reactor  # noqa: E402

SUBPROTOCOL = "echo"
# The suite compares pickled values; equality is what it means.
Case.compare = lambda self, one, other: one == other


def octets(text):
    return text.encode("latin-1") if isinstance(text, str) else text


def case_id(case):
    return case.__name__.removeprefix("Case").replace("_", ".")


def order(name):
    return [int(part) for part in name.split(".")]


def select(patterns):
    chosen = {}
    for case in Cases:
        if any(fnmatch.fnmatchcase(case_id(case), pattern) for pattern in patterns.split(",")):
            chosen[case_id(case)] = case
    return [chosen[name] for name in sorted(chosen, key=order)]


class Results:
    def __init__(self, path, cases):
        self.path, self.missing = path, [case_id(case) for case in cases]
        self.cases = {}

    def add(self, case, result):
        name = case_id(type(case))
        self.cases[name] = result
        if name in self.missing:
            self.missing.remove(name)
        if result["behavior"] != "OK" or result["close"] != "OK":
            print(f"{name}: {result['behavior']}, closing {result['close']}", flush=True)

    def write(self):
        Path(self.path).write_text(json.dumps({"cases": self.cases, "missing": self.missing}, indent=1))


class Fuzzer:
    """What the cases expect of the protocol they drive, on top of autobahn's."""

    case = None
    connectionWasOpen = False
    createWirelog = True

    def begin(self, case_class):
        self.started = time.monotonic()
        self.errors = []
        self.wire = []
        self.txFrameStats = {}
        self.case = case_class(self)

    def guarded(self, function, *arguments):
        """An exception of a case is not to pass for a verdict."""
        try:
            function(*arguments)
        except Exception:
            self.errors.append(traceback.format_exc())
            self.failConnection()

    # From the protocol to the case.

    def onOpen(self):
        self.connectionWasOpen = True
        if self.case:
            self.guarded(self.case.onOpen)

    def onMessage(self, payload, isBinary):
        if self.case:
            self.guarded(self.case.onMessage, payload.decode("latin-1"), isBinary)

    def onPong(self, payload):
        if self.case:
            self.guarded(self.case.onPong, payload.decode("latin-1"))

    def onClose(self, wasClean, code, reason):
        if self.case:
            self.guarded(self.case.onClose, wasClean, code, reason)

    def end(self):
        case, self.case = self.case, None
        if not case:
            return
        self.guarded(case.onConnectionLost, self.failedByMe)
        result = {
            "behavior": "SUITE ERROR" if self.errors else case.behavior,
            "close": case.behaviorClose,
            "seconds": round(time.monotonic() - self.started, 3),
            "closeCode": self.remoteCloseCode,
        }
        if result["behavior"] != "OK" or result["close"] != "OK":
            result |= {"text": case.result, "closeText": case.resultClose, "wire": self.wire, "errors": self.errors}
            result["description"] = case.DESCRIPTION
            result["expectation"] = case.EXPECTATION
        self.factory.results.add(case, result)

    # From the case to the protocol.

    def sendFrame(self, opcode, payload=b"", fin=True, rsv=0, mask=None, payload_len=None, chopsize=None, sync=False):
        payload = octets(payload)
        if payload_len is not None:
            payload = (payload * (payload_len // len(payload) + 1))[:payload_len]
        super().sendFrame(opcode, payload, fin, rsv, octets(mask), None, chopsize, sync)

    def sendMessage(self, payload, isBinary=False, fragmentSize=None, sync=False, doNotCompress=False):
        super().sendMessage(octets(payload), isBinary, fragmentSize, sync, doNotCompress)

    def sendMessageFrameData(self, payload, sync=False):
        return super().sendMessageFrameData(octets(payload), sync)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        super().sendCloseFrame(code, octets(reasonUtf8), isReply)

    def enableWirelog(self, enable):
        self.createWirelog = enable

    def later(self, delay, function):
        def act():
            if self.state != self.STATE_CLOSED:
                self.guarded(function)

        reactor.callLater(delay, act)

    def continueLater(self, delay, function, tag=None):
        self.later(delay, function)

    def killAfter(self, delay):
        self.later(delay, self.failConnection)

    def closeAfter(self, delay):
        self.later(delay, self.sendClose)

    # What goes over the wire.

    def note(self, direction, header, payload):
        if self.case and self.createWirelog and len(self.wire) < 50:
            self.wire.append([direction, header.opcode, header.fin, header.rsv, len(payload), payload[:64].hex()])

    def logRxFrame(self, header, payload):
        self.note("received", header, b"".join(payload))

    def logTxFrame(self, header, payload, repeatLength, chopsize, sync):
        if self.case:
            self.txFrameStats[header.opcode] = self.txFrameStats.get(header.opcode, 0) + 1
        self.note("sent", header, payload)


class ClientProtocol(Fuzzer, WebSocketClientProtocol):
    def connectionMade(self):
        self.begin(self.factory.cases[self.factory.index])
        super().connectionMade()

    def connectionLost(self, reason):
        super().connectionLost(reason)
        self.end()


class ServerProtocol(Fuzzer, WebSocketServerProtocol):
    action = None

    def onConnect(self, request):
        target = urlsplit(self.http_request_uri)
        self.action = target.path
        if self.action == "/runCase":
            number = int(parse_qs(target.query)["case"][0])
            self.begin(self.factory.cases[number - 1])
        return SUBPROTOCOL if SUBPROTOCOL in request.protocols else None

    def onOpen(self):
        super().onOpen()
        if self.action == "/getCaseCount":
            self.sendMessage(str(len(self.factory.cases)))
            self.sendClose()
        elif self.action == "/updateReports":
            self.sendClose()

    def connectionLost(self, reason):
        super().connectionLost(reason)
        self.end()
        if self.action == "/updateReports":
            reactor.callLater(0.1, reactor.stop)


class ClientFactory(WebSocketClientFactory):
    protocol = ClientProtocol
    index = 0

    def clientConnectionLost(self, connector, reason):
        self.index += 1
        if self.index < len(self.cases):
            connector.connect()
        else:
            reactor.stop()

    def clientConnectionFailed(self, connector, reason):
        print(f"cannot connect: {reason.getErrorMessage()}", flush=True)
        reactor.stop()


class ServerFactory(WebSocketServerFactory):
    protocol = ServerProtocol


def set_up(factory, cases, results):
    factory.cases, factory.results = cases, results
    factory.logFrames = True
    # A close frame first, then the end (RFC 6455 §7.1.7).
    factory.setProtocolOptions(failByDrop=False)
    return factory


def main():
    role, *rest = sys.argv[1:]
    url = rest.pop(0) if role == "server" else None
    cases = select(rest[0])
    if not cases:
        sys.exit(f"no case matches {rest[0]}")
    results = Results(rest[1], cases)
    if role == "server":
        parts = urlsplit(url)
        factory = set_up(ClientFactory(url, protocols=[SUBPROTOCOL]), cases, results)
        reactor.connectTCP(parts.hostname, parts.port, factory)
    else:
        factory = set_up(ServerFactory("ws://127.0.0.1:0", protocols=[SUBPROTOCOL]), cases, results)
        port = reactor.listenTCP(0, factory, interface="127.0.0.1").getHost().port
        factory.setSessionParameters(f"ws://127.0.0.1:{port}", protocols=[SUBPROTOCOL])
        print(f"listening on ws://127.0.0.1:{port}", flush=True)
    try:
        reactor.run()
    finally:
        results.write()


if __name__ == "__main__":
    main()
