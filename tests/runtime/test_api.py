"""``Run`` is what a user sees: its members are those of the docs, and to make one starts nothing."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim import optimizer

import rankup
from rankup.runtime.api import Run
from rankup.runtime.checkpointing.stop import StopWatch
from rankup.runtime.context import RunContext
from rankup.runtime.init import choose_strategy
from rankup.runtime.loop.precision import make_precision

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "library-in-full.md"
DECISION = Path(__file__).parents[2] / "docs" / "adr" / "0010-a-run-has-few-members.md"
MEMBERS = {
    *("world", "device", "strategy"),
    *("prepare", "register", "forget"),
    *("epochs", "steps", "batches", "batch", "global_step"),
    *("backward", "step", "gather"),
    *("meter", "log", "print", "sum", "mean"),
    *("save", "save_model", "state"),
}


def made(world: rankup.World) -> Run:
    device = torch.device("cpu")
    precision = make_precision("fp32", device)
    context = RunContext(world, device, precision, choose_strategy("none", rankup.World()), 0, None)
    return Run(context, None, StopWatch(None, world.rank, None))


def test_the_public_members_of_a_run_are_those_that_the_reference_names_and_the_decision_lists():
    public = {name for name in dir(rankup.init()) if not name.startswith("_")}
    assert public == MEMBERS
    named = set(re.findall(r"\brun\.([a-z]\w*)", REFERENCE.read_text()))
    assert named == public  # a name that is gone is not documented any more
    rows = re.findall(r"^\| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", DECISION.read_text(), re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == public


def test_the_public_names_of_the_package_are_in_the_reference():
    named = set(re.findall(r"\brankup\.([A-Za-z]\w*)", REFERENCE.read_text()))
    assert {name for name in rankup.__all__ if name != "__version__"} <= named


def test_to_make_a_run_starts_nothing():
    torch.manual_seed(7)
    generators, threads, hook = torch.get_rng_state(), threading.active_count(), sys.excepthook
    hooks = dict(optimizer._global_optimizer_pre_hooks)
    assert made(rankup.World(rank=1, world_size=2)).world.rank == 1
    assert not dist.is_initialized()
    assert threading.active_count() == threads and sys.excepthook is hook
    assert torch.equal(torch.get_rng_state(), generators)
    assert dict(optimizer._global_optimizer_pre_hooks) == hooks
