"""A workload of the user's own: where they stand, and from a package that they have installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("warm_python")
EXAMPLE = Path(__file__).parents[2] / "examples" / "my_workload.py"

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "spiral-lab"
version = "1.0"
[tool.hatch.build.targets.wheel]
packages = ["spiral_lab"]
"""


def train(target: str, *args: str, cwd: Path, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "train", target, *args, "--json"],
        cwd=cwd, capture_output=True, text=True, env={**os.environ, **env}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@pytest.mark.slow
def test_the_example_learns_on_two_processes_from_where_its_user_stands(tmp_path):
    (tmp_path / "my_workload.py").write_bytes(EXAMPLE.read_bytes())
    summary = train("my_workload:Spirals", "--nproc-per-node", "2", cwd=tmp_path)
    assert summary["test_accuracy"] > 0.9
    assert (summary["epochs"], summary["lr"], summary["samples"]) == (10, 0.01, 60_000)
    assert summary["from_workload"] == ["data", "epochs", "gamma", "lr"]


@pytest.fixture
def installed(tmp_path) -> Path:
    """A folder of installed packages, with ``spiral_lab.workloads`` among them."""
    project, target = tmp_path / "project", tmp_path / "site"
    (project / "spiral_lab").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "spiral_lab" / "__init__.py").touch()
    (project / "spiral_lab" / "workloads.py").write_bytes(EXAMPLE.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--disable-pip-version-check", "--target", target, project],
        check=True, cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    return target


def test_an_installed_packages_workload_is_found_from_any_directory(tmp_path, installed):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    summary = train(
        "spiral_lab.workloads:Spirals", "--set", "arms=4", "--epochs", "1", cwd=elsewhere, PYTHONPATH=str(installed)
    )  # fmt: skip
    assert (summary["workload"], summary["settings"]) == ("spiral_lab.workloads:Spirals", {"arms": "4"})
    assert Path(summary["run"]).is_relative_to(elsewhere)
