"""Processes of the suite: where they run, how they start and end, and the machine that they run on."""

import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Machine:
    """Starts programs of the suite, each pinned to a core."""

    def __init__(self, build):
        self.build = Path(build).resolve()
        self.out = self.build / "bench"
        cores = sorted(os.sched_getaffinity(0))
        self.server_core, self.client_core = cores[0], cores[-1]
        self.cores = len(cores)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(self.build / "lib"))

    def program(self, name):
        return str(self.out / name)

    def pinned(self, core, *command):
        return [str(word) for word in (["taskset", "-c", core] if core is not None else []) + list(command)]

    def run(self, *command, core="client", timeout=120, environment=None):
        """The JSON object that a program prints."""
        core = self.client_core if core == "client" else core
        done = subprocess.run(
            self.pinned(core, *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            env=dict(self.environment, **(environment or {})),
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{Path(str(command[0])).name} failed: {done.stderr.strip() or done.returncode}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def reference(self, name, *arguments):
        """The same of a reference program, which has both ends in it."""
        cores = ["-S", self.server_core, "-C", self.client_core]
        return self.run(self.program(name), *arguments, *cores, core=None)

    @contextlib.contextmanager
    def server(self, *arguments, core="server", environment=None, wrapper=()):
        core = self.server_core if core == "server" else core
        process = subprocess.Popen(
            self.pinned(core, *wrapper, self.program("echo_server"), *arguments),
            stdout=subprocess.PIPE,
            text=True,
            env=dict(self.environment, **(environment or {})),
        )
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError("echo_server did not start")
            yield Server(process, url)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


    @contextlib.contextmanager
    def openssl_server(self, certificate_file, key_file):
        """OpenSSL's own server, which answers a request for "/page" with a line: its port."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "page").write_text("here\n", encoding="ascii")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            process = subprocess.Popen(
                self.pinned(
                    self.server_core,
                    "openssl",
                    "s_server",
                    "-accept",
                    f"127.0.0.1:{port}",
                    "-cert",
                    certificate_file,
                    "-key",
                    key_file,
                    "-tls1_3",
                    "-WWW",
                    "-quiet",
                ),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                for _ in range(200):
                    time.sleep(0.05)
                    with socket.socket() as probe:
                        if probe.connect_ex(("127.0.0.1", port)) == 0:
                            break
                else:
                    raise RuntimeError("openssl s_server did not start")
                yield port
            finally:
                process.kill()
                process.wait()


class Server:
    def __init__(self, process, url):
        self.process, self.url = process, url
        self.port = int(re.search(r":(\d+)/", url)[1])

    def memory(self, field="VmRSS"):
        """Resident memory in bytes: VmRSS, or VmHWM for the most since reset_peak."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) * 1024

    def reset_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")


@contextlib.contextmanager
def certificate():
    """A certificate for localhost, made for the run: the files of certificate and key."""
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/certificate.pem", f"{folder}/key.pem"]
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-out",
                files[0],
                "-keyout",
                files[1],
            ],
            check=True,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        yield files


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout or done.stderr).strip().split("\n")[0] or "unknown"


def description():
    """What has to be known of a machine to judge figures that were taken on it."""
    information = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*:\s*(.*)", information)
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))
    system = (
        platform.freedesktop_os_release().get("PRETTY_NAME", "") if hasattr(platform, "freedesktop_os_release") else ""
    )
    return {
        "processor": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(memory[1]) / 1e6, 1),
        "virtual": "hypervisor" in information,
        "kernel": platform.release(),
        "system": system,
        "swift": first_line(os.environ.get("SWIFT", "swift"), "--version"),
        "cc": first_line(os.environ.get("CC", "cc"), "--version"),
        "python": platform.python_version(),
        "openssl": first_line("openssl", "version"),
        "revision": first_line("git", "-C", str(HERE), "describe", "--always", "--dirty"),
    }
