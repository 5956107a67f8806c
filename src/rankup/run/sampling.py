"""The sampler of this node's processors (``rankup.monitor``), beside the launcher: it ends with it, or with us."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rankup.core import shell
from rankup.core.rundir import RunDir
from rankup.run.process_cleanup import MARK

_GPUS = "CUDA_VISIBLE_DEVICES"


@contextlib.contextmanager
def sampled(run: RunDir, env: Mapping[str, str], *, wanted: bool) -> Iterator[None]:
    """Sample this node while the body runs, whose processes have ``env``. Nobody waits for the sampler's start.

    If it cannot be started or fails, there are no samples, and nothing is said: a run requires none.
    """
    process = _start(run, env) if wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def _start(run: RunDir, env: Mapping[str, str]) -> shell.Process[bytes] | None:
    # Our Python, which imports what we import: in another folder, or modules of the job's folder would come first.
    ours = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}  # noqa: PTH100
    ours |= {name: env[name] for name in (MARK, _GPUS) if name in env}
    try:
        return shell.start(
            [sys.executable, "-m", "rankup.monitor", str(run.path), str(os.getpid())],
            env=ours,
            cwd=Path("/"),
            stdin=shell.DEVNULL,
            stdout=shell.DEVNULL,
            stderr=shell.DEVNULL,
            new_session=True,
            die_with_parent=True,
        )
    except OSError:  # no memory, or no more processes
        return None
