import socket
import subprocess
import threading

import pytest

from program import Server


@pytest.fixture(scope="session")
def server():
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """An authority, a certificate of localhost and 127.0.0.1, one of another name, and a client's."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True, timeout=60)

    def key(name):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    key("ca")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=Test authority", "-days", "2", "-out", "ca.pem")
    for name, alternatives in [
        ("server", "DNS:localhost,IP:127.0.0.1"),
        ("other", "DNS:other.example"),
        ("client", "DNS:client.example"),
    ]:
        key(name)
        openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        (folder / f"{name}.ext").write_text(f"subjectAltName={alternatives}\n")
        openssl(
            *f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2".split(),
            *f"-extfile {name}.ext -out {name}.pem".split(),
        )
    return folder


@pytest.fixture
def raw_server():
    """Starts TCP servers that run a function for each connection; yields `start(function) -> port`."""
    listeners = []

    def start(function):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection):
            with connection:
                try:
                    function(connection)
                except OSError:
                    pass

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.close()
