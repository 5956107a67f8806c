"""What runs first in each Python of a recorded script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankup.core.records import read_records

STARTUP = Path(__file__).parents[3] / "src" / "rankup" / "runtime" / "tracing" / "startup"
# As transformers does: it looks for torch long before it imports it.
SCRIPT = """\
import importlib.util, os
importlib.util.find_spec("torch")
import torch
print("RANK" in os.environ)
bag = torch.nn.EmbeddingBag(10, 3, sparse=True)
opt = torch.optim.SGD(bag.parameters(), lr=0.1)
for step in range(3):
    bag(torch.tensor([[step, step + 1]])).sum().backward()
    opt.step()
    opt.zero_grad()
"""


def run(python: str | Path, folder: Path, **variables: str) -> str:
    (folder / "trace").mkdir()
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "RANKUP_TRACE": str(folder / "trace"), **variables}
    command = [python, "-c", SCRIPT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_look_for_torch_is_no_import_of_it_and_sparse_gradients_are_recorded(tmp_path: Path):
    assert run(sys.executable, tmp_path, RANK="0", WORLD_SIZE="1") == "True"
    steps = read_records(tmp_path / "trace" / "rank-0.jsonl", "step")
    assert [record["step"] for record in steps] == [1, 2, 3]
    assert len({record["gradients"] for record in steps}) == 3


def test_a_script_that_runs_alone_has_no_variables_of_a_launcher(tmp_path: Path, warm: Path):
    assert run(warm / "python", tmp_path, RANK="0", WORLD_SIZE="1", RANKUP_TRACE_ALONE="1") == "False"
