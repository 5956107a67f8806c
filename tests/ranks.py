"""Real ranks for tests: processes that meet over gloo on the loopback interface.

They are forked from a server that has imported torch and run nothing, so that eight ranks cost less than one
``import torch``. ``run_ranks(function, world_size, *args)`` gives what ``function(*args)`` returned on each rank.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import itertools
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

context = multiprocessing.get_context("forkserver")
_PASSED = ("RANKUP_LOST",)  # from this process: the server has the environment of its start
TIMEOUT_S = 240  # below the one of pytest: a loaded machine is slow, and no defect


_BLOCKS, _BLOCK = range(10_000, 32_000, 500), 500
_mine: tuple[int, Iterator[int], int] | None = None  # process id, ports, the lock


def free_port() -> int:
    """One of this process's ports. They are below those that the kernel gives to connections, any of which could be
    gone before a rank listens on it; no other process has them, also not one of another test run."""
    global _mine
    if _mine is None or _mine[0] != os.getpid():
        _mine = (os.getpid(), *_claim())
    while True:
        port = next(_mine[1])
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _claim() -> tuple[Iterator[int], int]:
    for first in _BLOCKS:
        lock = os.open(f"{tempfile.gettempdir()}/rankup-tests-ports-{first}", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return itertools.cycle(range(first, first + _BLOCK)), lock
    raise AssertionError("all ports are taken by other test runs")


def _rank(pipe: Connection, env: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ.update(env)
    # A rank that hangs says where, just before it is killed.
    faulthandler.dump_traceback_later(TIMEOUT_S - 10, file=2)
    import torch

    torch.set_num_threads(1)
    try:
        result = ("value", function(*args))
    except BaseException:
        result = ("error", traceback.format_exc())
    pipe.send_bytes(
        pickle.dumps(result)
    )  # plainly: torch's own way shares memory with a process that is gone
    pipe.close()
    # As a launcher would have it: no rank outlives its work, whatever thread a communicator still holds.
    os._exit(0)


def run_ranks(
    function: Callable[..., Any], world_size: int, *args: Any, env: dict[str, str] | None = None
) -> list[Any]:
    """What ``function(*args)`` returned, by rank; the first rank's error fails the test with its traceback."""
    port = free_port()
    processes, pipes = [], []
    for rank in range(world_size):
        ours, theirs = context.Pipe()
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            **{name: os.environ[name] for name in _PASSED if name in os.environ},
            **(env or {}),
        }
        process = context.Process(target=_rank, args=(theirs, variables, function, args))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    results: dict[int, Any] = {}
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(results) < world_size:
            ready = wait([p for r, p in enumerate(pipes) if r not in results], deadline - time.monotonic())
            assert ready, (
                f"ranks {sorted(set(range(world_size)) - results.keys())} did not end in {TIMEOUT_S} s"
            )
            for pipe in ready:
                rank = pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    kind, value = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
                except EOFError:
                    kind, value = "error", "ended without a word"
                assert kind == "value", f"rank {rank}: {value}"
                results[rank] = value
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            if len(results) < world_size:
                process.kill()
            process.join()
            process.close()
            pipe.close()
    return [results[rank] for rank in range(world_size)]
