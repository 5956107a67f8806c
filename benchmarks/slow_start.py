"""From the launch to the first step, on a file system whose every answer takes 0.2 ms longer.

``slow_files.c`` is preloaded, and delays each ``open`` and ``stat`` of a path below a folder. So the same start is
measured with the environment there, with rankup there, and with neither, as after a copy to a disk of the node.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import rankup
from benchmarks.contest import Claim, Result, take_turns

DELAY_US = 200
SCRIPT = """
import torch
import rankup

run = rankup.init()
x = torch.arange(28.0).reshape(14, 2) / 14
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model, opt, data = run.prepare(
    torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8
)
for a, b in run.steps(data, steps=1):
    break
"""
LOCAL, OURS, ALL = "all on a disk of the node", "rankup on the slow one", "the environment on the slow one"


def run(quick: bool) -> Result:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        library, script = folder / "slow_files.so", folder / "train.py"
        script.write_text(SCRIPT)
        source = Path(__file__).with_name("slow_files.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        slow = {LOCAL: "", OURS: f"{Path(rankup.__file__).parent}{os.sep}", ALL: f"{sys.prefix}{os.sep}"}
        counts = {name: folder / f"calls-{index}" for index, name in enumerate(slow)}

        def start(name: str) -> Callable[[], float]:
            env = {
                **os.environ,
                **{"LD_PRELOAD": str(library), "SLOW_US": str(DELAY_US), "OMP_NUM_THREADS": "1"},
                **{"SLOW_PREFIX": slow[name], "SLOW_COUNT": str(counts[name])},
            }

            def measure() -> float:
                began = time.perf_counter()
                subprocess.run([sys.executable, script], env=env, cwd=folder, check=True)
                return time.perf_counter() - began

            return measure

        measures = {name: start(name) for name in slow}
        take_turns(measures, 1)  # a warm-up: the files are in the page cache afterwards
        rounds = take_turns(measures, 1 if quick else 5)
        # Of the processes of a start, torch's helpers among them, the training asks most.
        calls = {name: max(map(int, path.read_text().split())) for name, path in counts.items()}
    return Result(
        "slow_start",
        "A start on a slow file system",
        "s",
        {"delay_us": DELAY_US, "calls": calls},
        rounds,
        [
            Claim("rankup on the slow file system / on the node", OURS, LOCAL, 1.1, at_most=True),
            Claim("the environment on the slow file system / on the node", ALL, LOCAL, None, at_most=True),
        ],
        [
            f"`open` and `stat` of paths there: {calls[OURS]:,} for rankup, {calls[ALL]:,} for the environment."
        ],
    )
