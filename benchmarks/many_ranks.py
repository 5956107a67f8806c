"""Real ranks on this machine: what they need to start, save and resume, and what a rank that is killed costs."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rankup.core.shell import start

STEPS, EVERY, KILLED_AFTER = 24, 6, 10
LIMIT_S = 900.0


def killed(ranks: int, pause: float) -> dict[str, float]:
    """A training in which the last rank is killed after step ``KILLED_AFTER``; ``rankup run`` starts all of them again.

    Seconds from the kill until no rank of the first attempt is left (``detection``), from there until the ranks
    begin again (``restart``) and until the first new step is done (``resume``); the steps that were trained again;
    seconds of the first start, and the largest resident memory of a rank.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        process, began = _started(ranks, folder, "--pause", str(pause)), time.time()
        try:
            victim = folder / f"rank-{ranks - 1}.jsonl"
            _wait(lambda: any(line.get("step", 0) >= KILLED_AFTER for line in _lines(victim)))
            pids = [_lines(path)[0]["pid"] for path in sorted(folder.glob("rank-*.jsonl"))]
            os.kill(_lines(victim)[0]["pid"], signal.SIGKILL)
            struck = time.time()
            _wait(lambda: not any(map(_lives, pids)))
            gone = time.time()
            code = process.wait(LIMIT_S)
        finally:
            process.kill()
        _check(code, folder)
        all_lines = [_lines(path) for path in sorted(folder.glob("rank-*.jsonl"))]
    first = all_lines[0]
    again = [line["began"] for line in first if "began" in line][1]
    before = [line for line in first if "step" in line and line["time"] < again]
    after = [line for line in first if "step" in line and line["time"] > again]
    return {
        "start s": before[0]["time"] - began,
        "detection s": gone - struck,
        "restart s": again - gone,
        "resume s": after[0]["time"] - again,
        "steps trained again": before[-1]["step"] - after[0]["step"] + 1,
        "steps since the save": before[-1]["step"] % EVERY,
        "peak bytes": max(line["peak"] for lines in all_lines for line in lines if "peak" in line),
    }


def saved(ranks: int, state: int, frozen: int = 0) -> dict[str, float]:
    """A training whose state has ``state`` MiB, and ``frozen`` MiB of weights that are not trained. What the second
    save adds to the memory that a rank needs for a step, on the rank where it is most; how much longer the steps around
    it take than others."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        process = _started(ranks, folder, "--state", str(state), "--frozen", str(frozen), "--pause", "0.5")
        try:
            code = process.wait(LIMIT_S)
        finally:
            process.kill()
        _check(code, folder)
        all_lines = [
            [line for line in _lines(path) if "step" in line] for path in sorted(folder.glob("rank-*"))
        ]
        written = sum(path.stat().st_size for path in folder.rglob("snapshots/step-*/*"))
    beyond = []
    for lines in all_lines:
        usual = max(line["peak"] for line in lines if 2 < line["step"] <= EVERY)
        beyond.append(max(line["peak"] for line in lines if line["step"] > EVERY) - usual)
    seconds = {b["step"]: b["time"] - a["time"] for a, b in zip(all_lines[0], all_lines[0][1:], strict=False)}
    with_save = [2 * EVERY + 1, 2 * EVERY + 2]
    usual_s = statistics.median(value for step, value in seconds.items() if 2 < step <= EVERY)
    return {
        "ranks": ranks,
        "state bytes": (state + frozen) * 2**20,
        "frozen bytes": frozen * 2**20,
        "beyond the state bytes": max(beyond),
        "stall s": sum(seconds[step] - usual_s for step in with_save),
        "step s": usual_s,
        "written bytes": written,
    }


def _started(ranks: int, folder: Path, *options: str) -> Any:
    command = [
        *(sys.executable, "-m", "rankup", "run", "--nproc-per-node", str(ranks), "--threads", "1"),
        *("--max-restarts", "1", "--no-monitor", "--runs-root", str(folder / "runs"), "--name", "many"),
        *("-m", "benchmarks.noting_training", str(folder)),
        *("--steps", str(STEPS), "--every", str(EVERY), *options),
    ]
    log = (folder / "log").open("wb")
    return start(
        command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, stdout=log, stderr=log, die_with_parent=True
    )


def _check(code: int, folder: Path) -> None:
    if code:
        raise SystemExit(f"the training ended with {code}:\n{(folder / 'log').read_text()[-4000:]}")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole ones: the last may still be being written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _wait(until: Any) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit("the ranks did not get there in time")
        time.sleep(0.05)
