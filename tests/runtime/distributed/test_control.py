"""Collectives that ranks do not all join, or not the same: an error that says who is where, never a wrong sum."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.distributed import waiting
from rankup.runtime.distributed.control import raise_on_all
from rankup.snapshots.peers import Peers


def attempt(do: Any) -> tuple[str, str]:
    try:
        return "", repr(do())
    except rankup.RankupError as error:
        return error.code, error.message


def other_lines() -> tuple[str, str]:
    run = rankup.init()

    def both() -> Any:
        if run.world.is_main:
            return run.sum(1.0)
        return run.sum(1.0)

    return attempt(both)


def under_is_main() -> tuple[str, str]:
    """Rank 0 alone adds up in the body; the others go on to the end of the epoch."""
    run = rankup.init()
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(4, 1)),
        global_batch=4,
    )

    def train() -> None:
        for x in run.steps(data, epochs=1):
            opt.zero_grad()
            model(x).mean().backward()
            opt.step()
            if run.world.is_main:
                run.sum(1.0)

    return attempt(train)


def other_tensors() -> tuple[str, str]:
    run = rankup.init()
    return attempt(lambda: run.sum(torch.ones(2 + run.world.rank)))


def evaluated_by_batch() -> tuple[str, str]:
    """A sum in a body of which ranks have different numbers, as 5 samples on 2 ranks have."""
    run = rankup.init()
    data = torch.utils.data.TensorDataset(torch.arange(5.0))

    def evaluate() -> float:
        for (x,) in run.batches(data, global_batch=2):
            run.sum(float(len(x)))
        return run.sum(1.0)

    return attempt(evaluate)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (other_lines, "rank 0 in run.sum at "),
        (under_is_main, "rank 0 in run.sum at "),
        (other_tensors, "rank 1 in run.sum of torch.float32 (3,) at "),
        (evaluated_by_batch, "rank 0 in run.sum at "),
    ],
)
def test_ranks_in_different_collectives_get_an_error_and_no_sum(program: Any, said: str):
    for code, message in run_ranks(program, 2):
        assert code == "unequal-collectives", message
        assert said in message and "test_control.py:" in message, message


def sums() -> list[Any]:
    run = rankup.init()
    rank = run.world.rank
    return [
        run.sum(0 if rank else 0.5),  # a rank without a batch begins with 0
        run.sum(-(2**40) + rank),
        run.sum(2**61),
        run.sum(rank == 1),
        run.mean(1.0 if rank else float("nan"), rank),
    ]


def test_numbers_keep_their_type_and_digits():
    for found in run_ranks(sums, 2):
        assert found == [0.5, -(2**41) + 1, 2**62, 1, 1.0]
        assert [type(value) for value in found] == [float, int, int, int, float]


def late(seconds: float) -> tuple[Any, str]:
    """Rank 1 comes late; what each rank gets, and what was printed."""
    waiting.WAIT_S, waiting.POLL_S = 0.5, 0.1
    run = rankup.init(timeout=timedelta(seconds=4))
    sys.stderr = io.StringIO()
    if run.world.rank == 1:
        time.sleep(seconds)
    found = attempt(lambda: run.sum(1.0))
    return found, sys.stderr.getvalue()


def test_a_rank_that_waits_says_where_the_others_are():
    (first, said), (second, _) = run_ranks(late, 2, 2.5)
    assert first == second == ("", "2.0")
    (line,) = said.splitlines()
    assert line.startswith("rankup: rank 0 has waited ") and " s in run.sum at " in line
    assert "test_control.py:" in line.partition("; rank 1 is at ")[2]


def test_after_the_timeout_the_error_says_where_the_others_are():
    ((code, message), _), _ = run_ranks(late, 2, 6.0)
    assert code == "collective-timeout"
    assert "rank 1 is at " in message and "test_control.py:" in message, message


def evaluates_by_its_own_loss() -> str:
    """What was printed. Rank 1 evaluates within a window of micro-batches, for its better loss; rank 0 trains on."""
    waiting.WAIT_S, waiting.POLL_S = 0.5, 0.1
    run = rankup.init(timeout=timedelta(seconds=4))
    held = rankup.ResidentData(torch.arange(16.0).reshape(16, 1))
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        held,
        global_batch=16,
        accumulate=4,
        shuffle=False,
    )
    values = run.register(best=0.5)
    sys.stderr = io.StringIO()
    rank = run.world.rank

    def train(patience: int = 3) -> None:
        for x in run.steps(data, epochs=1):
            local = float(rank + x.numel())
            run.backward(model(x).mean())
            if local > 2.5:
                values.best = local
                for batch in run.batches(held, global_batch=4):
                    model(batch)
                run.sum(1.0)
            run.step(opt)

    with contextlib.suppress(RuntimeError):  # rank 0 waits for rank 1 in DDP's reduction
        attempt(train)
    return sys.stderr.getvalue()


def test_a_hang_in_an_evaluation_within_a_window_names_the_values_that_differ():
    message = "".join(run_ranks(evaluates_by_its_own_loss, 2))
    said = message.partition("What differs there: ")[2]
    assert "best is 0.5 on rank 0, 3.0 on rank 1" in said, message
    assert "local is 2.0 on rank 0, 3.0 on rank 1" in said
    assert "patience" not in said and "rank is" not in said


@pytest.mark.usefixtures("warm_python")
def test_a_rank_that_has_ended_ends_the_wait_of_the_others_at_once(tmp_path: Path):
    (tmp_path / "leaves.py").write_text(
        "import sys, rankup\nrun = rankup.init()\nif run.world.rank == 1:\n    sys.exit()\nrun.sum(1.0)\n"
    )
    command = [sys.executable, "-m", "rankup", "run", "--nproc-per-node", "2", "leaves.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "rank 0 waited in run.sum at leaves.py:5, and rank 1 has ended" in said, said
    assert "[rank-left]" in said and said.count("Traceback") == 1, said


def refused_on_rank_1() -> list[int | None]:
    """Who tells an error that rank 1 alone has, and one that every rank has."""
    run = rankup.init()
    mine = rankup.RankupError("refused", "no") if run.world.rank == 1 else None
    told: list[int | None] = []
    for error in (mine, rankup.RankupError("refused", "no")):
        with pytest.raises(rankup.RankupError) as raised:
            raise_on_all(run._context.control, "a look", error)
        told.append(raised.value.told_by)

    def fail() -> None:
        if run.world.rank == 1:
            raise OSError("disk full")

    with pytest.raises((rankup.RankupError, OSError)) as raised:
        Peers(run.world).do(fail)
    return [*told, getattr(raised.value, "told_by", None)]


def test_one_rank_tells_an_error_that_all_raise():
    assert run_ranks(refused_on_rank_1, 2) == [[1, None, 1], [None, 0, None]]
