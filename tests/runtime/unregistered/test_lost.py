"""A resume that would lose what was not declared stops, and one registration cures it."""

from __future__ import annotations

import contextlib
import enum
import io
import itertools
import os
from pathlib import Path
from typing import Any

import module_of_script
import pytest
import torch
from programs_that_lose import PROGRAMS, OnClass
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.runtime.checkpointing import stages

X = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None]
CURABLE = [name for name, (make, _) in PROGRAMS.items() if make()[1] is not None]


def train(program: str, folder: Path, killed: int | None, cured: bool) -> list[float]:
    make, step = PROGRAMS[program]
    run = rankup.init(
        snapshots=rankup.Snapshots(every="2 steps", directory=folder, asynchronous=False), precision="fp64"
    )
    torch.manual_seed(0)
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    held, thing = make()
    if cured:
        run.register(**(thing if isinstance(held, tuple) else {"held": thing}))
    del thing
    for x in run.steps(data, epochs=3):
        if run.global_step == killed:
            return []
        (model(x) - step(held) * x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    return [value.item() for value in model.state_dict().values()]


def outcome(program: str, folder: Path, killed: int | None, cured: bool) -> dict[str, Any]:
    """The weights at the end, or the code of the error and what it says; and what was said."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return {"end": train(program, folder, killed, cured), "said": said.getvalue()}
    except RankupError as error:
        return {"code": error.code, "error": f"{error} {error.hint}", "said": said.getvalue()}


def attempts(program: str, folder: Path) -> dict[str, dict[str, Any]]:
    """All attempts with ``program``, each of which begins as in a process of its own."""

    def attempt(
        name: str, killed: int | None = None, *, cured: bool = False, lost: str = ""
    ) -> dict[str, Any]:
        stages._unnamed.clear()
        OnClass.count = module_of_script.count = module_of_script.TABLE["count"] = 0
        os.environ["RANKUP_LOST"] = lost
        return outcome(program, folder / name, killed, cured)

    found = {
        "whole": attempt("whole"),
        "killed": attempt("killed", 5),
        "stopped": attempt("killed"),
        "accepted": attempt("killed", lost="accept"),
    }
    if program in CURABLE:
        found["killed, cured"] = attempt("cured", 5, cured=True)
        found["cured"] = attempt("cured", cured=True)
    return found


@pytest.mark.repeated
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_resume_that_would_lose_what_was_not_declared_stops_and_one_registration_cures_it(
    tmp_path: Path, program: str
):
    (found,) = run_ranks(attempts, 1, program, tmp_path)
    whole, stopped, accepted = found["whole"], found["stopped"], found["accepted"]
    assert "these values change in training and are in no snapshot" in whole["said"], whole
    assert found["killed"]["said"].count("warning: these values") == 1
    assert stopped.get("code") == "state-lost", stopped
    assert "held" in stopped["error"] or "OnClass" in stopped["error"]
    assert "lost in this resume, as accepted" in accepted["said"]
    assert accepted["end"] != whole["end"]
    if program in CURABLE:
        assert "in no snapshot" not in found["killed, cured"]["said"]
        assert found["cured"].get("end") == whole["end"]


class Phase(enum.Enum):
    A = 1
    B = 2


def hints(folder: Path) -> tuple[str, list[str]]:
    """What is said of values that cannot be registered, and which of them are refused."""
    run = rankup.init(snapshots=rankup.Snapshots(directory=folder))
    model, opt, data = run.prepare(
        nn.Linear(1, 1).double(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(X), global_batch=4
    )
    phase, counter, turns = Phase.A, itertools.count(), itertools.cycle([1, 2, 3])
    refused = []
    for name, thing in (("phase", phase), ("counter", counter), ("turns", turns)):
        try:
            run.register(**{name: thing})
        except RankupError as error:
            refused.append(error.code)
    values = run.register(phase_kept=phase.name, counter_kept=0)  # as the hints say
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for x in run.steps(data, epochs=3):
            phase = Phase.B if run.global_step > 1 else Phase.A
            values.counter_kept = next(counter) + 0 * next(turns)
            model(x).sum().backward()
            opt.step()
            opt.zero_grad()
    return said.getvalue(), refused


def test_what_cannot_be_registered_gets_another_hint(tmp_path: Path):
    ((said, refused),) = run_ranks(hints, 1, tmp_path)
    assert refused == ["not-stateful"] * 3
    assert "values = run.register(phase=phase.name), set values.phase whenever phase moves on" in said
    assert "values = run.register(counter=0), set values.counter whenever counter moves on" in said
    assert "run.register(phase=phase)" not in said and "run.register(counter=counter)" not in said
