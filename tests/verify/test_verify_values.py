"""How far two numbers of processes end apart, and what may be said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from rankup.verify.first_difference import Difference
from rankup.verify.other_worlds import judge_any_world, judge_worlds
from rankup.verify.values import Distance, distance, judge
from snapshot_faults import ALONE


def apart(largest: float | None, kind: str = "float64[3]", name: str = "0/model/w") -> dict[str, Any]:
    return {"name": name, "left": kind, "right": kind, "largest": largest}


def option(left: str, right: str) -> dict[str, Any]:
    return {"name": "0/optimizer/groups/w/lr", "left": left, "right": right, "largest": None}


@pytest.mark.parametrize(
    ("differences", "same", "verdict", "proved", "code"),
    [
        ([], True, "identical", True, None),
        ([apart(1e-17), apart(3e-12)], True, "within 1e-09: largest difference 3.0e-12 (0/model/w)", True, None),
        ([apart(2e-9)], True, "differs: largest difference 2.0e-09 (0/model/w)", False, "other-model"),
        ([apart(1e-7, "float32[3]")], True, "not judged: largest difference 1.0e-07 (0/model/w)", True,
         "rounding-not-judged"),
        ([apart(None, "0.1", "0/optimizer/groups/w/lr")], True, "differs", False, "other-options"),
        ([option("0.05", "0.15")], True, "differs", False, "other-options"),
        ([option("0.05", "0.05000000000000001")], True, "within 1e-09: largest difference 6.9e-18 "
         "(0/optimizer/groups/w/lr)", True, None),
        ([option("0.05", "0.0500001")], True, "differs", False, "other-options"),
        ([apart(1e-7, "float32[3]"), option("0.05", "0.0500001")], True,
         "not judged: largest difference 1.0e-07 (0/model/w)", True, "rounding-not-judged"),
        ([apart(1e-7, "float32[3]"), option("0.05", "0.051")], True, "differs", False, "other-options"),
        ([option("1", "2")], True, "differs", False, "other-options"),
        ([apart(1e-7, "float32[3]")], False, "differs", False, "other-samples"),
        ([apart(1e-3)], False, "differs", False, "other-samples"),
        # Padded to the longest of other parts.
        ([apart(1e-10)], False, "within 1e-09: largest difference 1.0e-10 (0/model/w)", True, None),
        ([apart(float("inf"))], True, "differs: largest difference inf (0/model/w)", False, "other-model"),
    ],
)  # fmt: skip
def test_other_numbers_of_processes_are_judged_by_the_largest_difference(
    differences, same, verdict, proved, code
):
    said, good, finding = judge_worlds(judge(differences), same)
    assert (said, good) == (verdict, proved)
    assert (finding.code if finding else None) == code


def test_of_rounding_the_hint_says_how_a_script_trains_in_fp64():
    *_, finding = judge_worlds(judge([apart(1e-7, "float32[3]")]), True)
    assert finding is not None and 'rankup.init(precision="fp64")' in finding.fix


def test_of_another_model_in_fp64_the_loss_is_suspected_first():
    *_, finding = judge_worlds(judge([apart(2e-9)]), True)
    assert finding is not None and "run.backward(loss, count=…), see docs/how-to/losses.md" in finding.fix
    assert finding.fix.index("count=") < finding.fix.index("dropout")


@pytest.mark.parametrize(
    ("differences", "difference", "verdict"),
    [
        ([], None, "identical"),
        ([apart(1e-17)], None, "differs: first 0/model/w at the end"),
        ([apart(None, "0.1", "0/optimizer/groups/w/lr")], None, "differs: first 0/optimizer/groups/w/lr at the end"),
        ([], Difference(1, 0, 3, 0, ("the loss", "model/w")), "differs: first the loss, model/w at step 3"),
    ],
)  # fmt: skip
def test_where_the_same_bits_are_promised_nothing_is_near_enough(differences, difference, verdict):
    said, good, finding = judge_any_world(judge(differences), difference)
    assert said == verdict
    assert good is (finding is None) is (verdict == "identical")


@pytest.mark.slow
def test_what_the_first_rank_has_registered_is_no_difference_between_two_numbers_of_processes(tmp_path: Path):
    for seen in (3, 4):
        with Saver(tmp_path / str(seen), ALONE) as saver:
            state = SnapshotState({"w": torch.ones(2)}, {"registered": {"seen": {"value": seen}}})
            saver.save(1, state)
    assert distance(tmp_path / "3", tmp_path / "4", sys.executable) == Distance()
