"""A resume that would lose what was not declared stops, and one registration cures it."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from programs_that_lose import PROGRAMS
from torch import nn

import rankup
from ranks import run_ranks
from rankup.errors import RankupError

X = torch.linspace(-1, 1, 10, dtype=torch.float64)[:, None]
ACCEPT = {"RANKUP_LOST": "accept"}
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


def attempt(
    program: str, folder: Path, killed: int | None = None, *, cured: bool = False, **env: str
) -> dict[str, Any]:
    (result,) = run_ranks(outcome, 1, program, folder, killed, cured, env=env)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_resume_that_would_lose_what_was_not_declared_stops(tmp_path: Path, program: str):
    whole = attempt(program, tmp_path / "whole")
    assert "these values change in training and are in no snapshot" in whole["said"], whole
    killed = attempt(program, tmp_path / "killed", 5)
    assert killed["said"].count("warning: these values") == 1
    stopped = attempt(program, tmp_path / "killed")
    assert stopped.get("code") == "state-lost", stopped
    assert "held" in stopped["error"] or "OnClass" in stopped["error"]
    accepted = attempt(program, tmp_path / "killed", **ACCEPT)
    assert "lost in this resume, as accepted" in accepted["said"]
    assert accepted["end"] != whole["end"]


@pytest.mark.parametrize("program", CURABLE)
def test_one_registration_cures_it(tmp_path: Path, program: str):
    whole = attempt(program, tmp_path / "whole", cured=True)
    assert "in no snapshot" not in whole["said"]
    assert whole["end"] == attempt(program, tmp_path / "uncured", **ACCEPT)["end"]
    attempt(program, tmp_path / "killed", 5, cured=True)
    assert attempt(program, tmp_path / "killed", cured=True).get("end") == whole["end"]
