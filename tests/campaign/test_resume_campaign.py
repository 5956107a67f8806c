"""Planted faults of a resume, and right resumes, in programs that do not use rankup: what verify says of each."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from resume_faults import EXTRA, FAULTS, PROVED, RIGHT, ROUNDED, judged

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "resume-faults.json"
FOUND, RIGHT_CAUSE, PROVED_RIGHT = 40, 34, 20


@pytest.mark.campaign
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("warm_python")
def test_faults_of_a_resume_are_found_and_named_and_right_resumes_are_proved(tmp_path: Path):
    with ThreadPoolExecutor(2) as pool:
        faults = list(pool.map(partial(judged, tmp_path), FAULTS))
        right = list(pool.map(partial(judged, tmp_path), RIGHT))
        extra = list(pool.map(partial(judged, tmp_path), EXTRA))
    totals = {
        "found": sum(row["verdict"] not in (PROVED, ROUNDED) for row in faults),
        "right cause": sum(bool(row["right"]) for row in faults),
        "of": len(faults),
        "proved": sum(bool(row["right"]) for row in right),
        "of right resumes": len(right),
    }
    RESULTS.write_text(
        json.dumps({"totals": totals, "faults": faults, "right": right, "extra": extra}, indent=1) + "\n"
    )
    assert totals["found"] == len(faults) >= FOUND
    assert all((row["verdict"] in (PROVED, ROUNDED)) == (row["expected"] == PROVED) for row in extra)
    assert totals["right cause"] >= RIGHT_CAUSE
    assert totals["proved"] == len(right) >= PROVED_RIGHT
