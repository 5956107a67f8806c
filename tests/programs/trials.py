"""What a program is tried with, and what is compared: each function gives what is wrong, in words, or nothing."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from programs.attempts import Attempt, attempt
from programs.program import EQUAL, NOT_FOR, OWN, RAISED, Program, Result
from rankup.strategies.base import TORCH

TOLERANCE = 1e-9
STRATEGIES = ("none", "ddp", "fsdp", "any-world")


def applies(program: type[Program], strategy: str) -> bool:
    """Whether there is something to try: fsdp on CPUs needs torch 2.8."""
    return program.expects(strategy) != NOT_FOR and (strategy != "fsdp" or TORCH >= (2, 8))


def worlds(strategy: str) -> tuple[int, ...]:
    return {"none": (1,), "any-world": (1, 2, 3, 4)}.get(strategy, (2, 3, 4))


@cache
def plain(program: type[Program]) -> tuple[Result, int]:
    """What the plain loop ends with, and how many steps of optimizers it took; once per process."""
    state, threads, steps = torch.get_rng_state(), torch.get_num_threads(), 0

    def stepped(*_: Any) -> None:
        nonlocal steps
        steps += 1

    torch.set_num_threads(1)
    hook = register_optimizer_step_post_hook(stepped)
    try:
        return program().plain(), steps
    finally:
        hook.remove()
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def difference(theirs: Result, ours: Result, tolerance: float) -> str:
    """The first name that differs by more than ``tolerance`` (0: in any bit), and by how much; or nothing."""
    if theirs.keys() != ours.keys():
        return f"names differ: {sorted(theirs.keys() ^ ours.keys())}"
    for name, a in theirs.items():
        b = ours[name]
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{name}: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
            if torch.equal(a, b):
                continue
            number = torch.complex128 if a.is_complex() else torch.float64
            distance = (a.to(number) - b.to(number)).abs().max().item()
            if not distance <= tolerance:
                return f"{name} differs by {distance:.1e}"
        elif isinstance(a, float) and isinstance(b, float):
            if a != b and not abs(a - b) <= tolerance:
                return f"{name} differs: {a!r} and {b!r}"
        elif a != b:
            return f"{name} differs: {a!r} and {b!r}"
    return ""


class Trial:
    """A program under one strategy on one number of ranks, in a directory of its own."""

    def __init__(self, program: type[Program], strategy: str, world_size: int, folder: Path) -> None:
        self.program = program
        self.strategy = strategy
        self.world_size = world_size
        self.expected = program.expects(strategy)
        self.problems: list[str] = []
        self.trainings = self.killed = self.moved = 0  # how many of each were run
        self.whole: Attempt | None = None
        self._folder = folder
        self._registers = False

    def uninterrupted(self) -> Attempt:
        """From the beginning to the end: as the plain loop, without a run directory; or the named error, with one."""
        self.trainings += 1
        if self.expected in (EQUAL, OWN):
            self.whole = attempt(self.program, self.strategy, self.world_size)
            self._compare("uninterrupted", self.whole, None if self.expected == OWN else TOLERANCE)
        else:
            folder = self._folder / f"refused-{self.strategy}-{self.world_size}"
            self.whole = self._attempt(folder, "2 steps", 0)
            # Where torch raises on one rank, another may find the name of the error first.
            refused = self.whole.outcome not in ("ended", "killed", "hung")
            if not (refused if self.expected == RAISED else self.whole.outcome == self.expected):
                wrong = f"{self.expected} expected, {self.whole.outcome}: {self.whole.why}"
                self._note("uninterrupted", wrong)
        return self.whole

    def interrupted(self, parts: tuple[float, ...], every: str, *others: int) -> None:
        """Killed after each of ``parts`` of the optimizers' steps, and resumed; the last attempt ends: on as many
        ranks with the same bits as ``uninterrupted`` did, or as the plain loop where that was not run; and, from a
        copy of its snapshots, on each of the ``others``."""
        steps = plain(self.program)[1] if self.whole is None else self.whole.steps
        folder = self._folder / f"{self.strategy}-{self.world_size}"
        what = f"killed at {', '.join(f'{part:.0%}' for part in parts)}"
        for part in parts:
            self.killed += 1
            died = self._attempt(folder, every, max(1, round(steps * part)))
            if died.outcome != "killed":
                self._note(what, f"was not killed but {died.outcome}: {died.why}")
                return
        if not list((folder / "snapshots").glob("**/step-*")):
            self._note(what, "left no snapshot: this shows nothing")
        if self.program.lost and not self._registers:
            lost = self._attempt(folder, every, 0)
            if lost.outcome != "state-lost" or self.program.lost not in lost.why:
                self._note(
                    what, f"state-lost expected, which names {self.program.lost}: {lost.outcome}: {lost.why}"
                )
            self._registers = True  # what is registered now is found in the same snapshot
        for other in others if self.program.moves else ():
            self.moved += 1
            copied = self._folder / f"{folder.name}-to-{other}"
            shutil.copytree(folder, copied, symlinks=True)
            ended = attempt(self.program, self.strategy, other, copied, every, registers=self._registers)
            # One process that goes on as several is ddp from then on.
            expected = self.program.expects("ddp") if self.strategy == "none" else self.expected
            there = f"{what}, resumed on {other}"
            if expected not in (EQUAL, OWN):
                if ended.outcome != expected:
                    self._note(there, f"{expected} expected, {ended.outcome}: {ended.why}")
            elif self.strategy == "any-world":
                self._compare(there, ended, 0.0)
            elif self.expected == expected == EQUAL:
                self._compare(there, ended, TOLERANCE)
        self._same_bits(f"{what} and resumed", self._attempt(folder, every, 0))

    def same_bits_as(self, other: Trial) -> None:
        """Under any-world: whatever the number of ranks."""
        assert self.whole is not None and other.whole is not None
        if self.whole.outcome == other.whole.outcome == "ended":
            wrong = difference(other.whole.results[0], self.whole.results[0], 0.0)
            if wrong:
                self._note(f"on {other.world_size} and on {self.world_size} ranks", wrong)

    def _attempt(self, folder: Path, every: str, kill_at: int) -> Attempt:
        folder.mkdir(parents=True, exist_ok=True)
        return attempt(
            self.program, self.strategy, self.world_size, folder, every, kill_at, registers=self._registers
        )

    def _same_bits(self, what: str, ended: Attempt) -> None:
        if ended.outcome != "ended":
            self._note(what, f"{ended.outcome}: {ended.why}")
            return
        if self.whole is None:
            self._compare(what, ended, TOLERANCE)
            return
        for rank, (before, after) in enumerate(zip(self.whole.results, ended.results, strict=True)):
            if wrong := difference(before, after, 0.0):
                self._note(what, f"rank {rank}: {wrong}")

    def _compare(self, what: str, ended: Attempt, tolerance: float | None) -> None:
        """Every rank with every other one, in all bits; and with the plain loop, or under 0 with the whole run."""
        if ended.outcome != "ended":
            self._note(what, f"{ended.outcome}: {ended.why}")
            return
        first = ended.results[0]
        for rank, result in enumerate(ended.results):
            if wrong := difference(first, result, 0.0):
                self._note(what, f"rank 0 and rank {rank}: {wrong}")
        if tolerance == 0.0:
            assert self.whole is not None
            if wrong := difference(self.whole.results[0], first, 0.0):
                self._note(what, wrong)
        elif tolerance is not None and (wrong := difference(plain(self.program)[0], first, tolerance)):
            self._note(what, f"plain loop and rankup: {wrong}")

    def _note(self, what: str, wrong: str) -> None:
        self.problems.append(f"{self.program.name()}, {self.strategy} on {self.world_size}, {what}: {wrong}")
