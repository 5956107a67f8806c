"""What ranks agree on: reductions, sections, stop requests."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import stop


def reductions() -> dict:
    run = rankup.init()
    rank = run.world.rank
    tensor = torch.tensor([1.0 + rank, 10.0])
    count = [3, 1, 0][rank]
    value = [1.0, 5.0, float("nan")][rank]
    return {
        "int": run.sum(rank + 1),
        "bool": run.sum(rank > 0),
        "float": run.sum(0.5),
        "tensor": run.sum(tensor).tolist(),
        "untouched": tensor.tolist(),
        "mean": run.mean(value, count),
        "tensor mean": run.mean(torch.tensor(value), count).item(),
    }


def test_sums_keep_their_type_and_means_weigh_by_count():
    for rank, got in enumerate(run_ranks(reductions, 3)):
        assert got["int"] == 6 and isinstance(got["int"], int)
        assert got["bool"] == 2
        assert got["float"] == 1.5
        assert got["tensor"] == [6.0, 30.0]
        assert got["untouched"] == [1.0 + rank, 10.0]
        assert (
            got["mean"] == got["tensor mean"] == 2.0
        )  # (3 × 1 + 1 × 5) / 4; the empty rank's NaN is not asked


def test_one_process_reduces_to_itself():
    run = rankup.init()
    assert run.sum(3) == 3
    assert run.mean(2.5, 4) == 2.5
    with pytest.raises(rankup.RankupError, match="count="):
        run.mean(1.0)


def in_sections(directory: str, local_world: int) -> list[tuple[str, bool]]:
    run = rankup.init()
    seen = []
    for name, section in (
        ("main", rankup.first()),
        ("node", rankup.first("node")),
        ("shared", rankup.first(directory=Path(directory) / "shared")),
    ):
        mark = Path(directory) / f"{name}-{run.world.node_rank}"
        with section:
            seen.append((name, mark.exists() or (Path(directory) / f"{name}-0").exists()))
            time.sleep(0.1)
            mark.touch()
    return seen


def first_too_early() -> str:
    with pytest.raises(rankup.RankupError) as refused:
        rankup.first()
    return refused.value.code


def test_a_section_before_the_ranks_have_met_is_an_error():
    assert run_ranks(first_too_early, 2) == ["no-init"] * 2
    with rankup.first():  # one process meets nobody
        pass


def test_one_goes_first_and_the_others_find_its_work(tmp_path):
    first, second = run_ranks(in_sections, 2, str(tmp_path), 2)
    assert first == [("main", False), ("node", False), ("shared", False)]
    assert second == [("main", True), ("node", True), ("shared", True)]


def stop_requests(directory: str) -> list[bool]:
    run = rankup.init()
    answers = []
    stop.AGREE_EVERY_S = 0.05
    for number in range(60):
        if number == 20 and run.world.rank == 1:
            (Path(directory) / "STOP").write_text("test 0\n")
        answers.append(rankup.should_stop())
        time.sleep(0.01 * (run.world.rank + 1))
    return answers


@pytest.mark.parametrize("world_size", [1, 2])
def test_all_ranks_learn_of_a_stop_request_at_the_same_call(tmp_path, world_size):
    if world_size == 1:
        (tmp_path / "STOP").touch()
    answers = run_ranks(stop_requests, world_size, str(tmp_path), env={"RANKUP_RUN_DIR": str(tmp_path)})
    assert all(a == answers[0] for a in answers)
    assert answers[0][-1]
    if world_size == 2:
        assert not any(answers[0][:20])


def test_without_a_run_directory_nobody_asks_to_stop():
    rankup.init()
    assert not rankup.should_stop()


def duplicate_nan() -> bool:
    run = rankup.init()
    return math.isnan(run.sum(float("nan")))


def test_a_nan_in_a_sum_is_not_hidden():
    assert run_ranks(duplicate_nan, 2) == [True, True]
