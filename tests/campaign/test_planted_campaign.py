"""All planted faults and all right trainings (tests/verify/planted.py): what verify says of each, into one file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "verify"))

from planted import FAULTS, RIGHT
from test_planted import verdict

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "planted-faults.json"
SEEDS = (0,)


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_every_fault_is_found_and_every_right_training_is_proved(tmp_path: Path):
    said: dict[str, dict[str, list[str]]] = {"faults": {}, "right": {}}
    wrong = []
    for kind, trainings in (("faults", FAULTS), ("right", RIGHT)):
        for planted in trainings:
            for seed in SEEDS:
                folder = tmp_path / f"{planted.name}-{seed}"
                folder.mkdir()
                found = verdict(planted, folder, seed)
                said[kind].setdefault(planted.name, []).append(found)
                if found not in ((*planted.expected, "state-lost") if planted.expected else ("proved",)):
                    wrong.append(f"{planted.name} with seed {seed}: {found}")
    RESULTS.write_text(json.dumps(said, indent=2) + "\n")
    assert not wrong
