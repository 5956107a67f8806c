"""Twenty SIGKILLs by chance on one to four processes, and other numbers of processes: still the same model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "verify.json"
KILLS = 20


def verify(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rankup", "verify", "--json", *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    del answer["folder"]  # a path of this machine
    return answer


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_twenty_kills_and_other_numbers_of_processes_leave_the_same_model(tmp_path: Path):
    killed = ("--kills", str(KILLS))
    all_on = ("mnist-cnn", "--epochs", "2", "--set", "augment=on")
    shared = ("--kills", "0", "--steps", "23", "--world", "1,2,4,1")
    all_off = ("mnist-cnn", "--epochs", "1", "--set", "dropout=off", "--precision", "fp64")
    kills = {
        f"{processes} process{'es' * (processes > 1)}, dropout, shuffle, augmentation": verify(
            tmp_path, "--nproc-per-node", str(processes), *killed, *all_on
        )
        for processes in (1, 2, 3, 4)
    }
    results = kills | {
        "1, 2, 4 and 1 processes, fp64": verify(tmp_path, *shared, *all_off),
        "1, 2, 4 and 1 processes, any-world, dropout, shuffle, augmentation": verify(
            tmp_path, "--kills", "4", *shared[2:], *all_on, "--exact", "any-world"
        ),
    }
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    *_, worlds, any_world = results.values()
    for answer in kills.values():
        assert [row["verdict"] for row in answer["scenarios"]] == ["identical", "identical"]
        assert answer["scenarios"][1]["kills"] == KILLS
        assert answer["proved"], answer["not_crossed"]
    assert [row["verdict"] for row in any_world["scenarios"]] == ["identical"] * 5
    assert worlds["same"]
    assert all(row["distance"]["largest"] <= 1e-9 for row in worlds["scenarios"][1:])
