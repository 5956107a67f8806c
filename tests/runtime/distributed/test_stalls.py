"""A loop that makes no step is told of, once, and not where a long step is nothing new."""

from __future__ import annotations

import io
import sys
import time

import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.distributed import waiting
from rankup.runtime.distributed.waiting import Stalls


def told(looks: list[tuple[float, int | None]]) -> list[float]:
    """When a stall is told of, of looks at (time, finished steps)."""
    stalls, found = Stalls(30.0, 0.0), []
    for now, steps in looks:
        if stalls.seconds(steps, now) is not None:
            stalls.told()
            found.append(now)
    return found


def test_a_step_that_takes_long_is_told_of_once():
    assert told([(2.0 * i, min(i, 3)) for i in range(100)]) == [36.0]


def test_the_first_step_may_take_longer():
    assert told([(2.0 * i, 0) for i in range(100)]) == [120.0]


def test_steps_that_always_take_long_are_no_stall():
    assert told([(10.0 * i, i // 4) for i in range(100)]) == []
    assert told([(10.0 * i, min(i // 4, 3)) for i in range(100)]) == [520.0]


def test_the_code_between_two_epochs_may_take_its_time():
    assert told([(2.0 * i, i if i < 5 else None) for i in range(100)] + [(200.0, 5), (229.0, 5)]) == []


def test_each_stall_is_told_of():
    looks = [(2.0 * i, 1) for i in range(20)] + [(40.0 + 2 * i, 2) for i in range(300)]
    assert len(told(looks)) == 2


class Slow(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9:  # of the third step, on rank 0
            time.sleep(2.5)
        return torch.full((1,), float(index))


def stalled() -> str:
    """What was printed. Rank 0 waits for its data, the others in DDP's reduction."""
    waiting.WAIT_S, waiting.POLL_S = 0.5, 0.05
    run = rankup.init(seed=1)
    sys.stderr = io.StringIO()
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        Slow(),
        global_batch=4,
        shuffle=False,
        sample_rng=False,
    )
    for x in run.steps(data, epochs=1):
        run.backward(model(x).mean())
        run.step(opt)
    return sys.stderr.getvalue()


def test_ranks_that_wait_for_gradients_say_which_rank_still_waits_for_its_data():
    lines = [line for said in run_ranks(stalled, 3) for line in said.splitlines()]
    assert lines, "nothing was said"
    assert lines[0].startswith("rankup: no step for ")
    places = lines[0].removeprefix("rankup: ").split("; ")
    slow = [place for place in places if place.endswith("waiting for a batch")]
    assert not any("does not answer" in line for line in lines), lines  # also if two ask at the same moment
    assert len(slow) == 1 and "rank 0 is at " in slow[0], lines
