"""One attempt at a program: forked ranks that end, are refused, or are killed by a real SIGKILL."""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from contextvars import ContextVar
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from programs.program import How, Program, Result
from ranks import context, free_port
from rankup.errors import RankupError
from rankup.runtime.checkpointing import saves

TIMEOUT_S = 240.0
PATIENCE_S = 15.0  # for the others, when one rank was refused


@dataclass
class Attempt:
    """What came of it. ``outcome``: ``ended``, ``killed``, an error's code, ``raised`` (another error) or ``hung``."""

    outcome: str
    results: list[Result] = field(default_factory=list)  # by rank
    steps: int = 0  # of optimizers, on rank 0
    why: str = ""


def _rank(pipe: Connection, env: dict[str, str], program: type[Program], how: How, kill_at: int) -> None:
    os.environ.update(env)
    torch.set_num_threads(1)
    saves.WINDOW_PATIENCE = 2  # trainings here are a dozen steps long
    counted = ContextVar("counted", default=0)  # where no watch looks: it is no value of the program

    def stepped(*_: Any) -> None:
        counted.set(counted.get() + 1)
        if counted.get() == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(stepped)
    answer: tuple[str, Any, int]
    try:
        answer = ("ended", program().with_rankup(how), counted.get())
    except RankupError as error:
        answer = (error.code, f"{error.message} {error.hint}", counted.get())
    except BaseException:
        answer = ("raised", traceback.format_exc(), counted.get())
    pipe.send_bytes(pickle.dumps(answer))
    pipe.close()
    os._exit(0)


def attempt(
    program: type[Program],
    strategy: str,
    world_size: int,
    directory: Path | None = None,
    every: str = "off",
    kill_at: int = 0,
    *,
    registers: bool = False,
) -> Attempt:
    """Run ``program`` on ``world_size`` forked ranks; ``kill_at``: each kills itself after so many optimizer steps."""
    port = free_port()
    processes, pipes = [], []
    for rank in range(world_size):
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        if directory is not None:
            env |= {"RANKUP_RUN_DIR": str(directory), "RANKUP_SNAPSHOT_EVERY": every}
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_rank, args=(theirs, env, program, How(strategy, registers), kill_at)
        )
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    try:
        answers = _collect(pipes)
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            process.kill()
            process.join()
            process.close()
            pipe.close()
    return _judged(answers, world_size)


def _collect(pipes: list[Any]) -> dict[int, tuple[str, Any, int]]:
    """What each rank said, by rank; those that are still silent some time after one has failed are left out."""
    answers: dict[int, tuple[str, Any, int]] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(answers) < len(pipes):
        open_pipes = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
        ready = wait(open_pipes, max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            try:
                answer = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                answer = ("killed", None, 0)
            answers[pipes.index(pipe)] = answer
            if answer[0] == "killed":
                return answers  # the others are killed as well, wherever they are
            if answer[0] != "ended":
                deadline = min(deadline, time.monotonic() + PATIENCE_S)
    return answers


def _judged(answers: dict[int, tuple[str, Any, int]], world_size: int) -> Attempt:
    outcomes = [answer[0] for answer in answers.values()]
    if not outcomes:
        return Attempt("hung", why=f"no rank ended in {TIMEOUT_S:.0f} s")
    if "killed" in outcomes:
        return Attempt("killed")
    named = [outcome for outcome in outcomes if outcome not in ("ended", "raised")]
    if named:
        why = next(str(answer[1]) for answer in answers.values() if answer[0] == named[0])
        return Attempt(named[0], why=why)
    if set(outcomes) != {"ended"}:
        why = next(str(answer[1]) for answer in answers.values() if answer[0] == "raised")
        return Attempt("raised", why=why)
    if len(answers) < world_size:
        return Attempt("hung", why=f"only ranks {sorted(answers)} of {world_size} ended in {TIMEOUT_S:.0f} s")
    return Attempt("ended", [answers[rank][1] for rank in range(world_size)], answers[0][2])
