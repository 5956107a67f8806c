"""Scripts in the style of other frameworks run unchanged under ``rankup run``: one world, and one model in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from flaky import aborts_at_exit

pytestmark = pytest.mark.usefixtures("warm_python")
FRAMEWORKS = Path(__file__).parents[2] / "examples" / "frameworks"
DONE = re.compile(r"rank (\d+) of (\d+) is done, (.*)")
# Script → its package, "" for PyTorch alone; and the arguments that its users give it for two processes.
SCRIPTS = {
    "deepspeed_environment.py": ("", ()),
    "accelerate_loop.py": ("accelerate", ()),
    "hf_trainer.py": ("transformers", ()),
    "lightning_trainer.py": ("lightning", ("--devices", "2")),
}


def ranks_of(tmp_path: Path, *command: str, env: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    """(rank, world size, result) as each of two processes printed them."""
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "run", "--nproc-per-node", "2", *command],
        cwd=tmp_path,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(DONE.findall(done.stdout))


def test_every_script_is_in_the_table():
    assert {path.name for path in FRAMEWORKS.glob("*.py")} == set(SCRIPTS)


@pytest.mark.slow
@aborts_at_exit
@pytest.mark.parametrize("script", SCRIPTS)
def test_it_trains_one_model_on_two_processes(tmp_path, script):
    package, arguments = SCRIPTS[script]
    if package and not find_spec(package):
        pytest.skip(f"{package} is not installed: pip install 'rankup[peers]'")
    ranks = ranks_of(tmp_path, str(FRAMEWORKS / script), *arguments)
    assert [rank[:2] for rank in ranks] == [("0", "2"), ("1", "2")]
    assert ranks[0][2] == ranks[1][2]


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_knows_nothing_of_rankup(script):
    assert not re.search(r"^\s*(import|from) rankup", (FRAMEWORKS / script).read_text(), re.M)
