"""What the recording of ``rankup verify`` costs a script that does not use rankup, per step.

The MNIST network of the workloads in a textbook's loop: a shuffling DataLoader, Adam, fp32, one thread. The clock is
that of the process, so that waiting for a processor does not count. Two processes in turns: the plain loop, and the
same with what ``rankup verify`` records of any script: weights, the optimizer's state, gradients, buffers, the batch
and its samples, losses, generators, files.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.mnist import TextbookData, images
from benchmarks.worker import Play

STEPS = {16: 20, 64: 8}  # batch → steps of a round


def plain(source: str, batch: int, steps: int) -> Play:
    from rankup.workloads.mnist_cnn import MnistNet

    model = MnistNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TextbookData(*images(source, batch * steps)), batch_size=batch, shuffle=True)

    def play() -> float:
        began = time.process_time()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return time.process_time() - began

    return play


def recorded(source: str, batch: int, steps: int) -> Play:
    from rankup.runtime.tracing.script_hooks import record

    folder = tempfile.TemporaryDirectory(prefix="rankup-recording-")
    atexit.register(folder.cleanup)
    trace = Path(folder.name) / "trace-01"
    trace.mkdir()
    os.environ |= {"RANKUP_TRACE": str(trace), "RANKUP_WRITTEN": folder.name}
    record()
    return plain(source, batch, steps)


CONTENDERS = {"plain": plain, "recorded": recorded}


def run(quick: bool) -> Result:
    from rankup.workloads.data import is_present

    source = "fashion-mnist" if is_present("fashion-mnist") else "digits"
    rounds: Rounds = {}
    claims = []
    for batch, count in STEPS.items():
        steps = max(5, count // 5) if quick else count
        settings = {"source": source, "batch": batch, "steps": steps}
        seconds = contest(
            "recording",
            CONTENDERS,
            settings,
            threads=1,
            rounds=3 if quick else 7,
            processes=1,
        )
        for name, values in seconds.items():
            rounds[f"{name}, batch {batch}"] = [1e3 * value / steps for value in values]
        names = (f"recorded, batch {batch}", f"plain, batch {batch}")
        claims.append(Claim(f"a step recorded / plain, batch {batch}", *names, 1.3, at_most=True))
    shown = {"data": source, "precision": "fp32", "threads": 1, "steps by batch": STEPS}
    return Result(
        "recording", "What rankup verify records of any script", "ms of CPU/step", shown, rounds, claims
    )
