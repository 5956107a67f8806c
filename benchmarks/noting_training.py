"""``rankup run … noting_training.py FOLDER``: a training whose ranks write down when each step ended, and its memory.

A line of JSON for each: ``{"pid", "began"}`` first, then ``{"step", "time", "resident", "peak"}`` in epoch seconds and
bytes; ``peak`` is since the line before.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import rankup
from benchmarks.one_of_many import Samples, forget_peak, status


class Notes:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"rank-{os.environ['RANK']}.jsonl").open("a")
        self.write(pid=os.getpid(), began=time.time())

    def write(self, **line: Any) -> None:
        print(json.dumps(line), file=self._file, flush=True)

    def step(self, done: int) -> None:
        self.write(step=done, time=time.time(), resident=status("VmRSS"), peak=status("VmHWM"))
        forget_peak()


class Wide(torch.nn.Module):
    """Weights of so many bytes, in eight parts, and hardly any arithmetic. Besides ``frozen`` bytes, in 32 parts, that
    are not trained: all ranks map one file, so that many ranks with a large state fit into one machine."""

    def __init__(self, size: int, frozen: int, file: Path) -> None:
        super().__init__()
        parts = [torch.nn.Parameter(torch.zeros(max(10, size // 8 // 4 // 64), 64)) for _ in range(8)]
        self.parts = torch.nn.ParameterList(parts)
        if frozen:
            mapped = torch.from_file(str(file), shared=True, size=frozen // 4)
            self.frozen = torch.nn.ParameterList(
                torch.nn.Parameter(part, requires_grad=False) for part in mapped.chunk(32)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((F.linear(x, part[:10]) for part in self.parts), torch.zeros(()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=6, help="steps between two saves")
    parser.add_argument("--state", type=int, default=0, help="MiB: of weights and two moments together")
    parser.add_argument("--frozen", type=int, default=0, help="MiB: of weights that are not trained")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of each step")
    options = parser.parse_args()
    notes = Notes(options.folder)
    run = rankup.init(device="cpu", snapshots=rankup.Snapshots(every=f"{options.every} steps"))
    model: Any = Wide(options.state * 2**20 // 3, options.frozen * 2**20, options.folder / "frozen")
    ranks = run.world.world_size
    model, optimizer, data = run.prepare(
        model,
        lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        Samples(ranks * options.steps),
        global_batch=ranks,
    )
    run.forget("notes")
    for x, y in run.steps(data, epochs=1):
        run.backward(F.cross_entropy(model(x), y))
        run.step(optimizer)
        time.sleep(options.pause)
        notes.step(run.global_step + 1)


if __name__ == "__main__":
    main()
