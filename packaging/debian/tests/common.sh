# shellcheck shell=sh
# A server of the installed tool for the time of a test; its port is in $port.
set -eu
cd "${AUTOPKGTEST_TMP:-$(mktemp -d)}"

start_server() {
    blip serve 127.0.0.1:0 >server.out 2>&1 &
    server=$!
    trap 'kill $server 2>/dev/null || true' EXIT
    port=
    for _ in $(seq 100); do
        port=$(grep -oE '127\.0\.0\.1:[0-9]+' server.out | head -n 1 | cut -d: -f2) || true
        if [ -n "$port" ]; then return 0; fi
        sleep 0.1
    done
    cat server.out
    echo "the server did not start" >&2
    return 1
}
