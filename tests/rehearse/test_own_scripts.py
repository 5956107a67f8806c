"""The scripts that rankup renders are rehearsed without a finding, however their agents are started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = "import os\nif False:\n    import torch\nprint('rank', os.environ['RANK'])\n"


def rankup(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "rankup", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout


@pytest.mark.parametrize(
    "site",
    [
        ("pbs", "--queue", "q"),  # pbsdsh, in a function in the background
        ("pbs", "--queue", "q", "--fanout", "ssh"),
        ("olivia", "--account", "nn9999k"),  # an absolute path of the image, behind a shell
        ("slurm", "--spare", "1"),  # a node without ranks
    ],
    ids=" ".join,
)
def test_each_node_has_its_ranks_and_nothing_is_found(tmp_path: Path, site: tuple[str, ...]):
    (tmp_path / "train.py").write_text(PROGRAM)
    shape = ("--nodes", "2", "--gpus-per-node", "4", "--time", "20m")
    (tmp_path / "job.sh").write_text(rankup(tmp_path, "render", "--site", *site, *shape, "train.py"))
    answer = json.loads(rankup(tmp_path, "rehearse", "--json", "job.sh"))
    assert [one for one in answer["findings"] if one["severity"] in ("error", "warning")] == []
    hosts = [rank["host"] for rank in answer["processes"]]
    assert sorted(hosts) == ["node1"] * 4 + ["node2"] * 4


@pytest.mark.parametrize("site", [("slurm",), ("pbs", "--queue", "q")], ids=" ".join)
def test_each_node_stages_to_a_disk_of_its_own(tmp_path: Path, site: tuple[str, ...]):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part").write_text("precious")
    shape = ("--nodes", "2", "--gpus-per-node", "1", "--time", "20m", "--stage", f"d={tmp_path}/data")
    (tmp_path / "job.sh").write_text(rankup(tmp_path, "render", "--site", *site, *shape, "train.py", "{d}"))
    answer = json.loads(rankup(tmp_path, "rehearse", "--json", "job.sh"))
    assert [one for one in answer["findings"] if one["severity"] in ("error", "warning")] == []
    assert [rank["host"] for rank in answer["processes"]] == ["node1", "node2"]


@pytest.mark.parametrize(
    "shape",
    ["1 1", "2 1", *(pytest.param(each, marks=pytest.mark.campaign) for each in ("1 2", "1 1 --no-monitor"))],
)
def test_a_real_run_has_no_finding_and_no_sampler_among_its_ranks(tmp_path: Path, shape: str):
    (tmp_path / "train.py").write_text(PROGRAM)
    nodes, gpus, *options = shape.split()
    words = ("--nodes", nodes, "--gpus-per-node", gpus, "--time", "20m", *options, "train.py")
    (tmp_path / "job.sh").write_text(rankup(tmp_path, "render", "--site", "slurm", *words))
    answer = json.loads(rankup(tmp_path, "rehearse", "--json", "--for-real", "job.sh"))
    assert answer["findings"] == []
    assert [rank["rank"] for rank in answer["processes"]] == list(range(int(nodes) * int(gpus)))
    assert "done, exit code 0" in answer["output"]
