"""Runs the built blip tool: once to its end, or as a server for as long as a test needs it."""

import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BLIP = os.environ.get("BLIP", str(ROOT / "build" / "bin" / "blip"))


def blip(*arguments, input=None, timeout=30, **options):
    """Runs the tool to its end; outputs are bytes."""
    if input is None:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([BLIP, *map(str, arguments)], input=input, capture_output=True, timeout=timeout, **options)


class Server:
    """A `blip serve` of its own; the URL is known when the constructor returns."""

    def __init__(self, *arguments, address="127.0.0.1:0", **options):
        self.process = subprocess.Popen(
            [BLIP, "serve", address, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.PIPE),
            **options,
        )
        self.first_line = self.process.stdout.readline().decode()
        if not self.first_line:
            _, errors = self.process.communicate(timeout=10)
            raise RuntimeError(f"blip serve {address} did not start: {(errors or b'').decode()}")
        self.url = self.first_line.strip()

    @property
    def port(self):
        return int(self.url.split("://", 1)[1].split("/", 1)[0].rsplit(":", 1)[1])

    def wait_for_client(self):
        """Until a client is connected, and its first request surely here. The server runs with -v."""
        while not (line := self.process.stderr.readline()).startswith(b"+ "):
            assert line, "the server has ended"
        time.sleep(0.3)

    def stop(self, by=signal.SIGTERM, timeout=15):
        """Ends it and returns its exit code, what else it wrote, and its error output."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        try:
            output, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, output, errors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
