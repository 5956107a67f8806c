"""What a record of somebody's script calls its parameters does not depend on when Python collects garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rankup.core.records import read_records
from rankup.runtime.tracing.any_script import VARIABLE

SCRIPT = """\
import gc, sys, torch
from torch import nn
from rankup.runtime.tracing.script_hooks import record

record()
gc.collect()
gc.disable()

class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

torch.manual_seed(0)
first, second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
if "early" in sys.argv:
    gc.collect()
net = nn.Sequential(nn.Linear(3, 4), second, nn.Linear(4, 4), first)
if "between" in sys.argv:
    gc.collect()
model = Wrapped(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(5, 3)).pow(2).sum().backward()
    opt.step()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_collection_of_garbage_changes_no_name_and_no_digest(tmp_path: Path):
    states = []
    for when in ("never", "early", "between"):
        folder = tmp_path / when
        folder.mkdir()
        environment = {VARIABLE: str(folder), "PATH": "", "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", SCRIPT, when], env=environment, cwd=folder, check=True)
        states.append([record["state"] for record in read_records(folder / "rank-0.jsonl", "step")])
    assert len(states[0]) == 2
    assert "model/module.0.weight" in states[0][0]
    assert states[0] == states[1] == states[2]
