"""Makes the folder with the stand-ins for ``python``, and starts their server; see ``client.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("python", "python3", "rankup", "torchrun")


def write_clients(folder: Path) -> None:
    for program in PROGRAMS:
        (folder / program).write_text(f"#!{sys.executable} -IS\n{(HERE / 'client.py').read_text()}")
        (folder / program).chmod(0o700)


def start_server(folder: Path, host: str, enter: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Started by ``enter``, which goes to a host of that name. It is ready once ``ready`` has returned, and ends when
    its standard input is closed."""
    left_out = ("PYTHON", "OMP_NUM", "TORCH_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    server = (sys.executable, HERE / "server.py", folder / f"socket-{host}", folder / "python")
    own = {
        "OPENBLAS_NUM_THREADS": "1",  # it starts threads at its import otherwise
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages: a fork has fewer of them to copy
        "ROOM": "." * 50_000,
    }
    return subprocess.Popen(
        [*enter, *server, "." * 5_000],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, **own},
    )


def ready(server: subprocess.Popen[bytes]) -> None:
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"


def end(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.close()
    server.stdout.close()
    server.wait()
