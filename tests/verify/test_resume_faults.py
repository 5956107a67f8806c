"""Resumes of programs that do not use rankup: rules of ``script_causes`` that one program each can break. All of them
run in a campaign (tests/campaign/test_resume_campaign.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "campaign"))

from resume_faults import EXTRA, FAULTS, RIGHT, Planted, judged

IN_SHORT = (
    # An evaluation between two steps uses a loader.
    ("epochs", "as it is"),
    # Gradients that no step takes are of no step.
    ("epochs", "the last micro-batch of an epoch is dropped"),
    # Several steps have the same weights.
    ("steps", "as it is: the rate is zero at first"),
    # The batch comes from no loader.
    ("crops", "the batch that was fetched ahead is lost"),
)


@pytest.mark.repeated
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    "planted",
    [each for each in (*FAULTS, *RIGHT, *EXTRA) if (each.program, each.what) in IN_SHORT],
    ids=lambda each: each.program,
)
def test_a_resume_is_judged_right(planted: Planted, tmp_path: Path):
    row = judged(tmp_path, planted)
    assert row["right"], json.dumps(row, indent=2)
