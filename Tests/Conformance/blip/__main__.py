"""Tests an implementation of BLIP, 2 and 3 over WebSocket and 1 over TCP, as a scripted, hostile peer.

    python3 Tests/Conformance/blip client URL [OPTION]...
        is a client of a server under test, ws://host:port/path

    python3 Tests/Conformance/blip server --exec COMMAND [OPTION]...
        is a server for a client under test, which COMMAND starts

A server under test should have the profile "echo": it answers with the body, the properties but Profile, and the
flags Compressed and Urgent of the request. The cases of the profiles sink (answers with the size of the body),
source (as many bytes as the property "size" says), error (an error of the properties "domain", "code" and "text") and
sleep (answers after "ms" milliseconds) are skipped when it has none.

A client under test sends one request, writes the body of the reply to standard output and ends with status 0, or with
another one when it got none. In COMMAND, {url} is where to connect, {profile} the request's profile, {body} a file
with its body; {options} becomes what --option says of the request's flags compressed, urgent and no-reply:

    --exec 'blip request {url} {profile} -f {body} {options}' --option compressed=--compressed

--many COMMAND sends {count} requests with bodies of {size} bytes, {in_flight} at a time, on one connection.

Outcomes: PASS; NON-STRICT: deployed peers cope with it, but it ought to be otherwise; FAIL; SKIP: the implementation
lacks what the case needs. BLIP 1 is spoken with the port of the URL, and by a client under test to a blip:// URL.
The exit status is 1 if any case failed; with --strict also for NON-STRICT ones.
"""

import argparse
import fnmatch
import json
import shutil
import sys
from pathlib import Path

if not __package__:
    # Started as a folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "blip"

from blip import cases  # noqa: E402, F401
from blip.trial import CASES, Settings, run_case  # noqa: E402


def pairs(items, default):
    found = dict(default)
    for item in items or []:
        key, _, value = item.partition("=")
        found[key] = value
    return found


def parse():
    parser = argparse.ArgumentParser(
        prog="blip", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--version", type=int, choices=[1, 2, 3], action="append", help="default: 2 and 3")
    common.add_argument("--subprotocol", action="append", metavar="VERSION=NAME", help="such as 3=BLIP_3+CBMobile_3")
    common.add_argument("--only", default="*", metavar="PATTERN", help="cases to run, such as 'flow/*'")
    common.add_argument("--skip", action="append", default=[], metavar="PATTERN")
    common.add_argument("--timeout", type=float, default=8, help="seconds to wait for what has to come (default 8)")
    common.add_argument("--strict", action="store_true", help="let NON-STRICT outcomes fail, too")
    common.add_argument("--json", metavar="FILE", help="write the outcomes there, too; - for standard output alone")
    common.add_argument("--quiet", action="store_true", help="show only what did not pass")
    roles = parser.add_subparsers(dest="as_", metavar="client|server", required=True)
    client = roles.add_parser("client", parents=[common], help="test a server")
    client.add_argument("url")
    client.add_argument("--only-path", action="store_true", help="the server serves the URL's path only")
    server = roles.add_parser("server", parents=[common], help="test a client")
    server.add_argument("--exec", dest="command", required=True)
    server.add_argument("--many", default="")
    server.add_argument("--option", action="append", metavar="FLAG=TEXT")
    roles.add_parser("list", parents=[common], help="list the cases")
    return parser.parse_args()


def make_settings(options):
    names = pairs(options.subprotocol, {"3": "BLIP_3", "2": "BLIP", "1": ""})
    versions = options.version or [3, 2]
    subprotocols = {version: names[str(version)] for version in versions}
    if options.as_ == "client":
        return Settings(
            "server", url=options.url, only_path=options.only_path, subprotocols=subprotocols, timeout=options.timeout
        )
    return Settings(
        "client",
        command=options.command,
        many=options.many,
        options=pairs(options.option, {}),
        subprotocols=subprotocols,
        timeout=options.timeout,
    )


def chosen(options):
    return [
        case
        for case in CASES
        if fnmatch.fnmatchcase(case.name, options.only)
        and not any(fnmatch.fnmatchcase(case.name, pattern) for pattern in options.skip)
    ]


def main():
    options = parse()
    selection = chosen(options)
    if options.as_ == "list":
        for case in selection:
            roles, versions = "/".join(case.roles), "/".join(map(str, case.versions))
            print(f"{case.name:44} {roles:14} v{versions:4} {case.title} [{case.source}]")
        return 0
    settings = make_settings(options)
    show = options.json != "-"
    width = max(20, shutil.get_terminal_size((120, 25)).columns)
    rows = []
    for version in settings.subprotocols:
        for case in selection:
            if settings.role not in case.roles or version not in case.versions:
                continue
            outcome, text, seconds = run_case(case, settings, version)
            rows.append(
                {
                    "case": case.name,
                    "role": settings.role,
                    "version": version,
                    "outcome": outcome,
                    "seconds": round(seconds, 3),
                    "title": case.title,
                    "source": case.source,
                    "text": text,
                }
            )
            if show and (outcome != "PASS" or not options.quiet):
                line = f"{outcome:10} {settings.role} v{version} {case.name:44} {case.title}"
                print(line if not sys.stdout.isatty() else line[:width], flush=True)
                if text:
                    print(f"           {text}", flush=True)
    counts = {
        outcome: sum(row["outcome"] == outcome for row in rows) for outcome in ("PASS", "NON-STRICT", "FAIL", "SKIP")
    }
    failed = counts["FAIL"] + (counts["NON-STRICT"] if options.strict else 0)
    passed = len(rows) - failed - counts["SKIP"]
    if options.json:
        document = json.dumps({"counts": counts, "cases": rows}, indent=1)
        if show:
            Path(options.json).write_text(document)
        else:
            print(document)
    if show:
        note = f", {counts['NON-STRICT']} of them not strictly" if counts["NON-STRICT"] and not options.strict else ""
        skipped = f", {counts['SKIP']} skipped" if counts["SKIP"] else ""
        print(f"{settings.role} under test: {passed} passed{note}, {failed} failed{skipped}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
