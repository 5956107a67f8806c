"""Fifty requests to stop, in every phase of a training and in every way: fifty saves, and the model of none."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "stoppable.py"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "stop-requests.json"
PHASES = ("download", "first batch", "training", "evaluation", "behind the evaluation")
WAYS = ("file", "group", "runner")
# Before the loop a signal ends a process as it always did: there is nothing to save. A request in the file is heeded.
PAIRS = [pair for pair in itertools.product(WAYS, PHASES) if pair[0] == "file" or pair[1] != "download"]
REQUESTS = 25  # for each number of processes


def attempt(folder: Path, processes: int, request: str) -> tuple[int, Path, str]:
    """``rankup run``'s code, its run directory, and what it said."""
    words = ["run", "--nproc-per-node", str(processes), str(SCRIPT), str(folder), request]
    process = subprocess.Popen(
        [sys.executable, "-m", "rankup", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "RANKUP_SNAPSHOT_DIR": str(folder / "snapshots")},
    )
    (folder / "runner").write_text(str(process.pid))
    said, _ = process.communicate(timeout=120)
    newest = max((folder / "runs" / "stoppable").iterdir(), key=lambda run: run.stat().st_mtime_ns)
    return process.returncode, newest, said


def trained(folder: Path) -> list[list[dict[str, Any]]]:
    """What each rank noted."""
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("rank-*.jsonl"))
    ]


def losses(records: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(record["step"], record["loss"]) for record in records if "step" in record]


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_fifty_requests_to_stop_are_fifty_saves_and_the_same_model(tmp_path: Path):
    results: dict[str, Any] = {}
    for processes in (1, 2):
        whole, stopped = tmp_path / f"whole-{processes}", tmp_path / f"stopped-{processes}"
        whole.mkdir()
        stopped.mkdir()
        code, _, said = attempt(whole, processes, "")
        assert code == 0, said
        requests = itertools.islice(itertools.cycle(PAIRS), REQUESTS)
        fired: dict[str, int] = {}
        for way, phase in requests:
            before = set((stopped / "snapshots").glob("step-*"))
            code, run, said = attempt(stopped, processes, f"{phase} {way}")
            assert code == 75, (phase, way, said)
            assert (run / "outcome").read_text() == "requeue\n"
            events = [json.loads(line) for line in (run / "logs" / "events.jsonl").read_text().splitlines()]
            assert [event["code"] for event in events if event["event"] == "exit"] == [0] * processes
            assert set((stopped / "snapshots").glob("step-*")) - before or "resumed" in said, said
            fired[f"{phase}, {way}"] = fired.get(f"{phase}, {way}", 0) + 1
        code, _, said = attempt(stopped, processes, "")
        assert code == 0, said
        for once, often in zip(trained(whole), trained(stopped), strict=True):
            # Each step in order, to the last bit. A resume in the code after an epoch gives its last step again.
            assert list(dict.fromkeys(losses(often))) == losses(once)
            assert often[-1] == once[-1]
        results[f"{processes} process{'es' * (processes > 1)}"] = {
            "requests": sum(fired.values()),
            "steps": len(losses(trained(whole)[0])),
            "by phase and way": fired,
            "code of rankup run": 75,
            "codes of the ranks": 0,
            "losses and weights": "identical",
        }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
