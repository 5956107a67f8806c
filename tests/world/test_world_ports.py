"""A port is held: its own server listens on it, no other holder gets it, and it is free when the holder ends."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
import time
from pathlib import Path

from rankup.world import ports


def listens(port: int, *, reuse: bool) -> bool:
    """Whether a server can listen on the port now, as torch's store does: on all addresses, with SO_REUSEADDR."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        try:
            server.bind(("", port))
            server.listen()
        except OSError:
            return False
        return True


def test_two_holders_that_try_the_same_ports_get_two(monkeypatch):
    class Same:
        def sample(self, population, count):
            return [23456, 23457, 23458]

    monkeypatch.setattr(ports.random, "SystemRandom", Same)
    with ports.hold_port() as one, ports.hold_port() as other:
        assert one.getsockname()[1] != other.getsockname()[1]


def test_a_held_port_can_be_listened_on_by_its_server_alone():
    with ports.hold_port() as holder:
        port = holder.getsockname()[1]
        assert ports.FIRST_PORT <= port <= ports.LAST_PORT
        assert not listens(port, reuse=False)
        assert listens(port, reuse=True)
        with socket.socket() as server:  # and nobody else can have it then
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", port))
            server.listen()
            assert not listens(port, reuse=True)
    assert listens(port, reuse=False)


def test_a_job_script_runs_its_text_with_any_python_and_it_ends_with_the_script():
    source = Path(ports.__file__).read_text()
    ast.parse(source, feature_version=(3, 6))
    shell = 'exec {port}< <(exec "$1" - $$ <<<"$2"); head -n 1 <&"$port"; read -r _'
    script = subprocess.Popen(
        ["bash", "-c", shell, "_", sys.executable, source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with script:
        assert script.stdout is not None
        port = int(script.stdout.readline())
        assert not listens(port, reuse=False)
        script.kill()
    for _ in range(100):
        if listens(port, reuse=False):
            return
        time.sleep(0.1)
    raise AssertionError("the holder has outlived its script")
