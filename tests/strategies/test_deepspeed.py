"""``deepspeed``, where it is installed, takes the steps of one process; it steps on copies in fp32, so that near."""

from __future__ import annotations

import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from test_strategies_same_model import CASES, TOLERANCE, by_hand, mnist_cnn
from torch.nn import functional as F
from toy import adam, largest_difference, prepared, strategy, trained

import rankup
from ranks import run_ranks
from rankup.strategies.state import whole_weights

pytestmark = [
    pytest.mark.slow,  # its import alone takes seconds
    pytest.mark.skipif(
        find_spec("deepspeed") is None, reason="deepspeed is not installed: pip install 'rankup[deepspeed]'"
    ),
]
CASES_HERE: dict[str, dict[str, Any]] = {
    "adam": {"precision": "fp32", "optimizer": adam},
    "an empty rank and clipping": {"precision": "fp32", "samples": 17, "options": {"clip": 0.5}},
    "bf16": CASES["bf16"],
}


def all_by_hand() -> dict[str, dict]:
    return {case: by_hand(**what) for case, what in CASES_HERE.items()}


def rates() -> list[float]:
    """How far each step moves the weights, under a schedule that lets the first one alone move them."""
    run = rankup.init(seed=2, strategy=strategy("deepspeed"))
    model, opt, feed = prepared(run, 24)
    schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.0)
    moved, before = [], copy.deepcopy(whole_weights(run._context.strategy, run._context.models[0]))
    for x, y in run.steps(feed, epochs=1):
        run.strategy.forward_backward(model, F.mse_loss, x, y)
        run.step(opt)
        schedule.step()
        after = copy.deepcopy(whole_weights(run._context.strategy, run._context.models[0]))
        moved.append(largest_difference(before, after))
        before = after
    return moved


def everything() -> dict[str, Any]:
    # A kernel for shared memory takes it a minute to compile; without, gloo reduces.
    import_module("deepspeed").ops.__compatible_ops__["deepspeed_shm_comm"] = False
    steps = {case: trained("deepspeed", **what) for case, what in CASES_HERE.items()}
    return {**steps, "mnist-cnn": mnist_cnn("deepspeed", "fp32"), "rates": rates()}


@pytest.fixture(scope="module")
def one_process() -> dict[str, dict]:
    return run_ranks(all_by_hand, 1)[0]


@pytest.fixture(scope="module")
def two_ranks() -> list[dict[str, Any]]:
    return run_ranks(everything, 2)


@pytest.mark.parametrize("case", CASES_HERE)
def test_its_steps_are_those_of_one_process(one_process, two_ranks, case):
    wanted = one_process[case]
    tolerance = TOLERANCE[CASES_HERE[case]["precision"]]
    for rank in two_ranks:
        assert largest_difference(rank[case]["weights"], wanted["weights"]) < tolerance
        assert rank[case]["losses"] == pytest.approx(wanted["losses"], abs=tolerance, rel=1e-6)
        assert rank[case]["norms"] == pytest.approx(wanted["norms"], rel=1e-5)
        assert rank[case]["counted"] == wanted["counted"]


def test_weights_in_channels_last_order_take_the_same_step(two_ranks):
    alone = run_ranks(mnist_cnn, 1, "auto")[0]
    assert largest_difference(two_ranks[0]["mnist-cnn"], alone) < TOLERANCE["fp32"]


def test_a_schedule_of_torch_sets_its_rate(two_ranks):
    first, *rest = two_ranks[0]["rates"]
    assert first > 0 and rest == [0.0, 0.0]
