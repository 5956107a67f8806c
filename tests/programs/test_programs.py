"""Small programs that real users write, each beside its plain loop: equal, or the named error. See program.py."""

from __future__ import annotations

import fcntl
import json
import runpy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from generated import check_generated
from programs.catalogue import PROGRAMS
from programs.program import EQUAL, OWN, Program
from programs.trials import STRATEGIES, Trial, applies, worlds

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "programs.json"
# Every twelfth one each time the tests run: the campaign has all of them, in all ways.
NUMBERED = [
    pytest.param(number // 12, program, id=program.name(), marks=pytest.mark.campaign if number % 12 else [])
    for number, program in enumerate(PROGRAMS)
]


@pytest.mark.slow
def test_names_are_unique():
    names = [program.name() for program in PROGRAMS]
    assert len(set(names)) == len(names)


@pytest.mark.repeated
@pytest.mark.parametrize(("number", "program"), NUMBERED)
def test_a_program_ends_as_its_plain_loop_does_although_it_was_killed(
    number: int, program: type[Program], tmp_path: Path
):
    """One strategy, one number of ranks and one kill for each, in turn; all of them are the campaign's."""
    usable = [name for name in ("ddp", "any-world", "ddp", "fsdp") if applies(program, name)] or ["none"]
    strategy = usable[number % len(usable)]
    sizes = worlds(strategy)
    trial = Trial(program, strategy, sizes[number // 4 % len(sizes)], tmp_path)
    runs = trial.expected in (EQUAL, OWN)
    # A third attempt costs as much as the two others: the uninterrupted one, whose bits are wanted again.
    if not (runs and program.resumes) or trial.expected == OWN or number % 5 == 0:
        trial.uninterrupted()
    if runs and program.resumes and not trial.problems:
        trial.interrupted((0.65,), f"{1 + number % 3} steps")
    assert not trial.problems, "\n".join(trial.problems)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name() for program in PROGRAMS])
def test_a_program_on_every_number_of_ranks_under_every_strategy(program: type[Program], tmp_path: Path):
    """Each training is killed, and resumed on as many ranks and on another number of them."""
    cells: dict[str, Any] = {}
    problems = []
    for strategy in STRATEGIES:
        cells[strategy] = None
        if not applies(program, strategy):
            continue
        trials = [Trial(program, strategy, size, tmp_path) for size in worlds(strategy)]
        for trial in trials:
            ended = trial.uninterrupted().outcome == "ended"
            if strategy == "any-world":
                trial.same_bits_as(trials[0])
            if ended and program.resumes and not trial.problems:
                others = [size for size in (1, 2, 3, 4) if size != trial.world_size]
                trial.interrupted((0.65,), "2 steps", others[(trial.world_size + len(program.name())) % 3])
            problems += trial.problems
        tried = {
            what: sum(getattr(trial, what) for trial in trials) for what in ("trainings", "killed", "moved")
        }
        cells[strategy] = {"result": program.expects(strategy), "worlds": worlds(strategy), **tried}
    assert not problems, "\n".join(problems)
    write_row(program, {"summary": program.summary(), "resume": program.resume(), "cells": cells})


def write_row(program: type[Program], row: dict[str, Any]) -> None:
    """Into the results of the campaign, of which several processes may run parts."""
    with (Path(tempfile.gettempdir()) / "rankup-programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"programs": {}}
        rows = results["programs"] | {program.name(): row}
        ordered = {known.name(): rows[known.name()] for known in PROGRAMS if known.name() in rows}
        written = {"torch": torch.__version__, "programs": ordered}
        RESULTS.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")


def test_the_committed_table_is_what_the_campaign_wrote_of_today_s_programs():
    tool = runpy.run_path(str(RESULTS.parents[2] / "tools" / "programs_table.py"))
    results = json.loads(RESULTS.read_text())
    known = {program.name(): program for program in PROGRAMS}
    for name, row in results["programs"].items():
        assert (row["summary"], row["resume"]) == (known[name].summary(), known[name].resume()), name
        for strategy, tried in row["cells"].items():
            assert tried is None or tried["result"] == known[name].expects(strategy), (
                f"{name}: run the campaign"
            )
    page = tool["PAGE"].read_text()
    made = tool["replaced"](page, tool["render"](results))
    check_generated(page, made, tool["PAGE"].name, "python tools/programs_table.py")
