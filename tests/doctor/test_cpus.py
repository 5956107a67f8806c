"""How much of its cores a rank gets: each rank is measured, and a slow one again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rankup.doctor.plan import Plan
from rankup.doctor.probes import cpus

NEVER = 1000.0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each of 64 ranks was measured. Core 3 was busy for a moment, core 7 is shared all the time."""
    taken: Counter[int] = Counter()

    def slowdown(affinity: Sequence[int], mine: set[int]) -> float:
        (core,) = affinity
        taken[core] += 1
        return {3: 5.0 if taken[3] < 3 else 1.0, 7: 1.0 + taken[7]}.get(core, 1.0)

    monkeypatch.setattr(
        cpus, "node_ranks", lambda *_: [{"rank": rank, "affinity": [rank]} for rank in range(64)]
    )
    monkeypatch.setattr(cpus, "_slowdown", slowdown)
    monkeypatch.setattr(cpus, "_processor_times", dict)
    return taken


def test_a_slow_rank_gets_more_turns_and_its_best_counts(
    tmp_path: Path, turns: Counter[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpus, "_LONGEST", NEVER)
    found = cpus.probe(Plan(hosts=("a",), folder=str(tmp_path)), 0)
    slowdown = {one["rank"]: one["slowdown"] for one in found["ranks"]}
    assert slowdown == dict.fromkeys(range(64), 1.0) | {7: 2.0}
    assert turns[3] == 3 and turns[7] == cpus._TURNS
    assert {turns[rank] for rank in range(64) if rank not in (3, 7)} == {1}


def test_what_there_was_no_time_for_is_left_out(
    tmp_path: Path, turns: Counter[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpus, "_LONGEST", -1.0)
    assert cpus.probe(Plan(hosts=("a",), folder=str(tmp_path)), 0)["ranks"] == []
    assert not turns
