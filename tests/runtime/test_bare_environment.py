"""What a job imports needs the standard library and torch alone: shown in an environment that has nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

SCRIPT = """
import sys, rankup
assert "torch" not in sys.modules, "import rankup loads torch"
import torch
run = rankup.init()
net = torch.nn.Linear(2, 1)
x = torch.arange(14.).reshape(7, 2) / 14
model, opt, data = run.prepare(net, lambda p: torch.optim.Adam(p, lr=.1),
                               rankup.ResidentData(x, x.sum(1, keepdim=True)), global_batch=3)
losses = []
for a, b in run.steps(data, epochs=20):
    loss = (model(a) - b).square().mean(); loss.backward(); opt.step(); opt.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 4
from rankup.train.__main__ import work
from rankup.train.options import TrainOptions
work(TrainOptions("rankup.workloads.mnist_cnn:MnistCnn", "mnist-cnn", epochs=1, global_batch=256))
foreign = {name.partition(".")[0] for name in sys.modules} & {"typer", "rich", "psutil", "pydantic", "click"}
assert not foreign, foreign
print("trained")
"""


def needed_by(name: str, seen: set[str]) -> set[str]:
    """The distributions that ``name`` cannot be imported without, itself included."""
    if name in seen:
        return seen
    try:
        requires = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return seen
    seen.add(name)
    for requirement in requires:
        if "extra ==" not in requirement:
            needed_by(re.match(r"[A-Za-z0-9._-]+", requirement).group().lower(), seen)  # type: ignore[union-attr]
    return seen


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A fresh environment with links to torch and what torch itself needs, and nothing else."""
    venv.create(tmp_path / "bare", symlinks=True)
    target = Path(
        sysconfig.get_path(
            "purelib", "venv", {"base": str(tmp_path / "bare"), "platbase": str(tmp_path / "bare")}
        )
    )
    for name in needed_by("torch", set()):
        tops = {Path(file).parts[0] for file in importlib.metadata.files(name) or ()}
        for top in tops - {"..", "__pycache__"}:
            source = Path(importlib.metadata.distribution(name).locate_file(top))
            if not (target / top).exists():
                (target / top).symlink_to(source)
    return tmp_path / "bare" / "bin" / "python"


@pytest.mark.slow
def test_a_job_trains_where_there_is_torch_and_nothing_else(bare_python, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    env = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    listed = subprocess.run([bare_python, "-c", "import typer"], env=env, capture_output=True, text=True)
    assert "No module named 'typer'" in listed.stderr  # the environment is bare indeed
    done = subprocess.run([bare_python, script], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("trained\n")
