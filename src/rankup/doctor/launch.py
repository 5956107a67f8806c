"""Starts one agent per node, and reads their lines until all have ended or the time is over."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.doctor.contract import Document, Reader
from rankup.doctor.plan import Plan
from rankup.run.agents import launch_script
from rankup.run.allocation import Allocation
from rankup.run.process_cleanup import MARK, kill_processes, new_process_mark

# Variables of a step or of an MPI that one of our callers is in: agents are started by another step.
_OF_STEP = (
    *(
        "SLURM_STEP",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_GTIDS",
        "SLURM_TASK_PID",
        "SLURM_NTASKS",
    ),
    *(
        "SLURM_NPROCS",
        "SLURM_CPU_BIND",
        "SLURM_MEM_BIND",
        "SLURM_DISTRIBUTION",
        "SLURM_GPUS_PER_TASK",
        "SLURM_GPU_BIND",
    ),
    *(
        "SLURM_TRES_PER_TASK",
        "SLURM_LAUNCH_NODE",
        "SLURM_SRUN_COMM",
        "SLURM_CPUS_PER_TASK",
        "SRUN_CPUS_PER_TASK",
    ),
    *(
        "SLURM_LABELIO",
        "PMI_",
        "PMIX_",
        "OMPI_",
        "PALS_",
        "TORCHELASTIC_",
        "SLURM_UNBUFFEREDIO",
        "SLURM_JOB_NAME",
    ),
)
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
_MODULE = "rankup.doctor.agent"


def agent_command(module: str = _MODULE) -> list[str]:
    return [sys.executable, "-m", module]


def environment(plan: Plan, env: Mapping[str, str], *, nested: bool) -> dict[str, str]:
    """That of the agents. ``nested``: we are a task of a step ourselves, and the agents are not of that step."""
    found = {**env, **plan.variables(), "PYTHONUNBUFFERED": "1"}
    if nested:
        found = outside(found)
        found["SLURM_OVERLAP"] = "1"  # the step that we are in holds the job's cores
    return found


def outside(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` without what one task of a launcher has of its own."""
    own = (*_RANKS, "CUDA_VISIBLE_DEVICES")
    return {name: value for name, value in env.items() if not name.startswith(_OF_STEP) and name not in own}


@contextmanager
def local_agents(plan: Plan, env: Mapping[str, str]) -> Iterator[list[shell.Process[bytes]]]:
    """One agent per host of the plan, all on this machine: for a single host, and for tests of many."""
    with _ended() as processes:
        for node in range(len(plan.hosts)):
            processes.append(_start([*agent_command(), str(node)], env))
        yield processes


@contextmanager
def allocation_agents(
    plan: Plan, allocation: Allocation, folder: Path, env: Mapping[str, str]
) -> Iterator[list[shell.Process[bytes]]]:
    """One agent per node of the allocation, started by its node launcher; its files are written to ``folder``."""
    node = '"$NODE_RANK"' if len(allocation.hosts) > 1 else "0"
    # One that fails is named by what is missing; srun would end the others with it (--kill-on-bad-exit).
    agent = [f'{shell.quote(agent_command())} {node} || echo "error: the agent ended with code $?" >&2']
    (folder / "logs").mkdir(exist_ok=True)
    text = launch_script(agent, allocation, folder, env, given=tuple(plan.variables()), by_step=False)
    script = folder / "agents.sh"
    script.write_bytes(os.fsencode(text))
    mark = new_process_mark(env)
    try:
        with _ended() as processes:
            processes.append(_start(["bash", str(script)], {**env, MARK: mark}))
            yield processes
    finally:
        kill_processes(mark)


@contextmanager
def _ended() -> Iterator[list[shell.Process[bytes]]]:
    processes: list[shell.Process[bytes]] = []
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 1.0
        for process in processes:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def _start(command: Sequence[str], env: Mapping[str, str]) -> shell.Process[bytes]:
    return shell.start(
        command, env=env, stdin=shell.DEVNULL, stdout=shell.PIPE, stderr=shell.PIPE, new_session=True,
        die_with_parent=True,
    )  # fmt: skip


def read_agents(
    processes: Sequence[shell.Process[bytes]], plan: Plan, deadline: float, *, last: str = "end"
) -> tuple[list[Document], dict[str, Any]]:
    """All documents that came until ``deadline`` (as of ``time.monotonic``), and what else the launcher printed.

    It ends earlier when every node has said its ``last`` part, or when all processes have ended.
    """
    began = time.monotonic()
    reader, errors = Reader(plan.tag), Reader(plan.tag)
    documents: list[Document] = []
    ended: set[int] = set()
    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.stdout is not None and process.stderr is not None
            for stream, into in ((process.stdout, reader), (process.stderr, errors)):
                os.set_blocking(stream.fileno(), False)
                # A reader for each stream of each process: their lines are not mixed.
                selector.register(stream, selectors.EVENT_READ, into if len(processes) == 1 else _like(into))
        while selector.get_map() and len(ended) < len(plan.hosts):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for key, _ in selector.select(min(left, 0.5)):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                found = key.data.feed(data) if data else key.data.end()
                for one in found:
                    documents.append({**one, "arrived": time.time()})
                    ended |= {one["node"]} if one.get("part") == last else set()
    return documents, {
        "noise": [*errors.noise, *reader.noise],
        "damaged": reader.damaged + errors.damaged,
        "seconds": round(time.monotonic() - began, 2),
        "window": round(deadline - began, 1),
        "ended": len(ended),
    }


def _like(reader: Reader) -> Reader:
    twin = Reader(reader.tag)
    twin.noise = reader.noise
    return twin
