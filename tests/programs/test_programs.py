"""Small programs that real users write, each beside its plain loop: equal, or the named error. See program.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from programs.catalogue import PENDING, PROGRAMS
from programs.program import EQUAL, NOT_FOR, OWN, Program
from programs.trials import Trial, applies, record, worlds

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "programs.json"
NUMBERED = [pytest.param(number, program, id=program.name()) for number, program in enumerate(PROGRAMS)]


def skip_if_pending(program: type[Program]) -> None:
    if program.name() in PENDING:
        pytest.skip(f"pending: {PENDING[program.name()]}")


def test_names_are_unique_and_pending_ones_exist():
    names = [program.name() for program in PROGRAMS]
    assert len(set(names)) == len(names)
    assert PENDING.keys() <= set(names)


@pytest.mark.parametrize(("number", "program"), NUMBERED)
def test_a_program_ends_as_its_plain_loop_does_also_when_it_was_killed(
    number: int, program: type[Program], tmp_path: Path
):
    """One strategy and one number of ranks for each, in turn; all of them are the campaign's."""
    skip_if_pending(program)
    usable = [name for name in ("ddp", "any-world", "ddp", "fsdp") if applies(program, name)] or ["none"]
    strategy = usable[number % len(usable)]
    sizes = worlds(strategy)
    trial = Trial(program, strategy, sizes[number % len(sizes)], tmp_path)
    if trial.uninterrupted().outcome == "ended" and not trial.problems:
        trial.killed((0.65,), f"{1 + number % 3} steps")
    assert not trial.problems, "\n".join(trial.problems)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name() for program in PROGRAMS])
def test_a_program_on_every_number_of_ranks_under_every_strategy(program: type[Program], tmp_path: Path):
    skip_if_pending(program)
    cells, problems = {}, []
    for strategy in ("none", "ddp", "fsdp", "any-world"):
        if not applies(program, strategy):
            cells[strategy] = NOT_FOR
            continue
        trials = [Trial(program, strategy, size, tmp_path) for size in worlds(strategy)]
        for trial in trials:
            ended = trial.uninterrupted().outcome == "ended"
            if strategy == "any-world":
                trial.same_bits_as(trials[0])
            if ended and trial.expected in (EQUAL, OWN) and not trial.problems:
                others = [size for size in (1, 2, 3, 4) if size != trial.world_size]
                trial.killed((0.65,), "2 steps", others[trial.world_size % 3])
            problems += trial.problems
        cells[strategy] = program.expects(strategy)
    assert not problems, "\n".join(problems)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[program.name()] = record(program, cells)
    names = [known.name() for known in PROGRAMS]
    ordered = {name: results[name] for name in names if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n")
