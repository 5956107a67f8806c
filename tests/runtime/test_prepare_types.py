"""What a type checker and the program itself say of the arguments of ``run.prepare``."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import rankup
from rankup.runtime.data.loader_options import TAKEN
from rankup.runtime.prepare import Preparation, PrepareArguments

ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch
from torch import nn
import rankup

run = rankup.init()
dataset = rankup.ResidentData(torch.ones(8, 1))
make = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
model, opt, data = run.prepare(nn.Linear(1, 1), make, dataset, global_batch=4, num_workers=2)
frozen, none, again = run.prepare(nn.Linear(1, 1), None, dataset, global_batch=4)
several, other, nothing = run.prepare([nn.Linear(1, 1)], make)
reveal_type(model)
reveal_type(opt)
reveal_type(data)
reveal_type(none)
reveal_type(nothing)
data.position
run.prepare(nn.Linear(1, 1), make, dataset, num_worker=2)  # wrong
run.prepare(nn.Linear(1, 1), make, dataset, global_batch="4")  # wrong
run.prepare(nn.Linear(1, 1), make, dataset, batch_size=4)  # wrong
run.batches(dataset, num_workers=2)
run.batches(dataset, num_worker=2)  # wrong
gathered, rows = run.gather(torch.ones(1), rows=True)
run.gather(torch.ones(1)).sum()
if step := run.step(opt):
    print(step.grad_norm)
print(run.step(opt).grad_norm)  # wrong
nothing.position  # wrong
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # without mypy's cache it reads torch
def test_a_type_checker_knows_what_prepare_returns_and_what_it_takes(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    shown = [line.partition('is "')[2].rstrip('"') for line in out.splitlines() if "Revealed" in line]
    # With a data set what the loop goes over is never None.
    assert [kind.rpartition(".")[2] for kind in shown] == ["Linear", "Optimizer", "DataFeed", "None", "None"]
    wrong = {number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# wrong")}
    errors = {int(found[1]) for found in re.finditer(r"script\.py:(\d+): error", out)}
    assert errors == wrong, out


def test_the_keywords_for_a_type_checker_are_those_of_prepare_and_of_the_loader():
    own = {
        name
        for name, p in inspect.signature(Preparation.prepare).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    loader = set(list(inspect.signature(DataLoader.__init__).parameters)[2:])
    named = {*PrepareArguments.__annotations__}
    assert own <= named
    assert named - own <= loader - TAKEN.keys()


@pytest.mark.parametrize("dataset", [None, rankup.ResidentData(torch.ones(8, 1))], ids=["no data", "data"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("num_worker", "num_workers"),
        ("globalbatch", "global_batch"),
        ("pin_memry", "pin_memory"),
        ("clipp", "clip"),
    ],
)
def test_a_mistyped_argument_is_named_with_the_nearest_right_one(dataset: Any, given: str, meant: str):
    run = rankup.init()
    with pytest.raises(rankup.RankupError, match="unknown-option") as caught:
        run.prepare(nn.Linear(1, 1), None, dataset, **{given: 4})
    assert f"{given}=" in caught.value.message and f"{meant}=" in caught.value.hint
    assert not run._context.models  # nothing has been changed


def test_a_mistyped_argument_of_an_evaluation_is_named_with_the_nearest_right_one():
    with pytest.raises(rankup.RankupError, match="unknown-option") as caught:
        next(rankup.init().batches(rankup.ResidentData(torch.ones(8, 1)), num_worker=2))
    assert caught.value.hint == "do you mean num_workers=?"
