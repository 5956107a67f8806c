"""Makes the folder with the stand-ins for ``python``, and starts their servers; see ``client.py``.

torch is imported once: by the first server, which lives as long as the test run. All others are forked from it: one for
each process of the test run, and one for each host of a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("python", "python3", "rankup", "torchrun")
FIRST = "RANKUP_TESTS_FIRST_SERVER"  # its socket, for the other processes of the test run
PATIENCE_S = 240  # until the first server has imported everything


@dataclass(frozen=True)
class Server:
    """It ends when ``life`` is closed. ``output``: two lines, its process id and ``ready``."""

    life: int
    output: int


def write_clients(folder: Path) -> None:
    for program in PROGRAMS:
        (folder / program).write_text(f"#!{sys.executable} -IS\n{(HERE / 'client.py').read_text()}")
        (folder / program).chmod(0o700)


def start_first_server() -> int:
    """It imports in the background, and ends with this process. Returns its process id; 0: another process has it."""
    if FIRST in os.environ:
        return 0
    folder = tempfile.TemporaryDirectory(prefix="rankup-first-")
    left_out = ("PYTHON", "OMP_NUM", "TORCH_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    path = f"{folder.name}/socket"
    own = {
        "OPENBLAS_NUM_THREADS": "1",  # it starts threads at its import otherwise
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages: a fork has fewer of them to copy
        "ROOM": "." * 50_000,
    }
    process = subprocess.Popen(
        [sys.executable, HERE / "server.py", path, f"{folder.name}/python", "." * 5_000],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env={**environment, **own},
    )
    os.environ[FIRST] = path

    def end_first_server() -> None:
        process.kill()  # it may not have imported everything yet
        process.communicate()
        folder.cleanup()

    atexit.register(end_first_server)
    return process.pid


def start_server(folder: Path, host: str, *, like: int = 0, nice: int = 0) -> Server:
    """For the clients of ``folder`` on that host, whose namespaces are those of the process ``like`` (0: this one's).
    It is ready once ``ready`` has returned."""
    start_first_server()
    life, ours = os.pipe()
    output, theirs = os.pipe()
    request = {
        "serve": f"{folder}/socket-{host}",
        "executable": f"{folder}/python",
        "like": like,
        "nice": nice,
    }
    data = marshal.dumps(request)
    with _connected(os.environ[FIRST]) as connection:
        socket.send_fds(connection, [len(data).to_bytes(8, "big")], [life, theirs, 2])
        connection.sendall(data)
    os.close(life)
    os.close(theirs)
    return Server(ours, output)


def _connected(path: str) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(path)
            return connection
        connection.close()
        assert time.monotonic() < deadline, "the first server does not start"
        time.sleep(0.05)


def ready(server: Server) -> int:
    """Wait until it serves; its process id."""
    said = b""
    while said.count(b"\n") < 2:
        more = os.read(server.output, 64)
        assert more, "a server ended before it was ready"
        said += more
    return int(said.replace(b"ready\n", b""))


def end(server: Server) -> None:
    os.close(server.life)
    while os.read(server.output, 64):
        pass
    os.close(server.output)
