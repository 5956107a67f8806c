"""The judges of `rankup doctor` on made-up facts of 4,096 ranks with five faults: seconds until all are named."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.contest import Claim, Result
from benchmarks.machine import cores

RANKS = 4096


def run(quick: bool) -> Result:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "doctor"))
    from clusters import facts, five_faults  # the facts that its test has, too

    from rankup.doctor.verdict import judge

    seconds, named = [], 0
    for _ in range(1 if quick else 5):
        cluster, expected = five_faults()
        gathered = facts(cluster)
        began = time.perf_counter()
        found = {finding.code: finding.place for finding in judge(gathered)}
        seconds.append(time.perf_counter() - began)
        named = sum(found.get(code) == place for code, place in expected.items())
    return Result(
        "doctor",
        "`rankup doctor` judges a large cluster",
        "seconds or count",
        {"cores": cores(), "ranks": RANKS, "nodes": 512, "faults": 5},
        {"seconds": seconds, "named": [float(named)]},
        [
            Claim(f"{RANKS} ranks, seconds", "seconds", None, 5, at_most=True),
            Claim("faults named by host", "named", None, 5, at_most=False),
        ],
        [],
    )
