#!/usr/bin/env python3
"""Serving static files, beside nginx on the same files: wrk asks the two in turn; medians and ratios.

    files.py --tool build/bin/blip [--rounds 5] [--seconds 3] [--document docs/performance.md]

Needs nginx and wrk. One worker and one loop; the clients are on the other processor.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SIZES = [("1 kB", 1_000), ("100 kB", 100_000), ("10 MB", 10_000_000)]
MARKS = ("<!-- files -->", "<!-- /files -->")


def start_blip(tool, folder):
    process = subprocess.Popen(
        [tool, "serve", "127.0.0.1:0", "--files", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return process, process.stdout.readline().strip().replace("ws://", "http://") + "files/"


def start_nginx(folder, scratch):
    port = 20000 + os.getpid() % 20000
    configuration = scratch / "nginx.conf"
    configuration.write_text(
        f"""daemon off; worker_processes 1; pid {scratch}/nginx.pid; error_log {scratch}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type application/octet-stream;
  client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy; fastcgi_temp_path {scratch}/fastcgi;
  uwsgi_temp_path {scratch}/uwsgi; scgi_temp_path {scratch}/scgi;
  server {{ listen 127.0.0.1:{port}; location /files/ {{ alias {folder}/; }} }}
}}
"""
    )
    process = subprocess.Popen(["nginx", "-p", str(scratch), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    return process, f"http://127.0.0.1:{port}/files/"


def wait_for(url):
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{url} does not answer")


def measure(url, seconds):
    """Requests a second."""
    output = subprocess.run(
        ["wrk", "-t1", "-c32", f"-d{seconds}s", url], capture_output=True, text=True, check=True, timeout=seconds + 60
    ).stdout
    assert "Non-2xx" not in output and "Socket errors" not in output, output
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--document")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        folder = scratch / "files"
        folder.mkdir()
        for name, size in SIZES:
            (folder / f"{size}.bin").write_bytes(os.urandom(size))
        # The worker of nginx runs as another user.
        scratch.chmod(0o755)
        blip, blip_url = start_blip(options.tool, str(folder))
        nginx, nginx_url = start_nginx(str(folder), scratch)
        try:
            rows = []
            for name, size in SIZES:
                file = f"{size}.bin"
                assert wait_for(blip_url + file) == wait_for(nginx_url + file)
                figures = {"blip": [], "nginx": []}
                for _ in range(options.rounds):
                    figures["blip"].append(measure(blip_url + file, options.seconds))
                    figures["nginx"].append(measure(nginx_url + file, options.seconds))
                ours, theirs = statistics.median(figures["blip"]), statistics.median(figures["nginx"])
                ratio = statistics.median(a / b for a, b in zip(figures["blip"], figures["nginx"]))
                rows.append(f"| {name} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |")
                print(rows[-1], flush=True)
        finally:
            for process in (blip, nginx):
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=20)
    table = "\n".join(["| file | libblip, requests/s | nginx, requests/s | ratio |", "| --- | --: | --: | --: |", *rows])
    if options.document:
        path = Path(options.document)
        text = path.read_text(encoding="utf-8")
        start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
        path.write_text(f"{text[:start]}\n{table}\n{text[end:]}", encoding="utf-8")


if __name__ == "__main__":
    main()
