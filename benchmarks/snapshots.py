"""A state of 160 MB, 40 tensors of 4 MB: how long the training waits for a save, how long until the save is durable,
and how long a resume takes to read it. Loading reads files from the page cache; ours verifies the hash of every byte.

All contenders write the same bytes to the same disk, synchronised. The files are removed again, which does not count.
"disk" only writes and synchronises the same bytes from memory. ``dcp.save`` is torch's distributed checkpoint with its
own file writer, which synchronises. ``dcp.async_save`` counts until it returns, like our asynchronous save. "whole" is
the time until the snapshot is durable. "stall" is the time that the training loses. Ours copies the optimizer's moments
during the next step's forward and backward, so its stall is the call, the extra time of these, and the wait before the
optimizer's step. The first round of each process allocates the buffers and is a warm-up.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from benchmarks.contest import Claim, Result, contest
from benchmarks.worker import Play
from rankup.snapshots.layout import entries
from rankup.snapshots.saver import Saver
from rankup.snapshots.state import SnapshotState
from rankup.snapshots.tensor_checksum import as_bytes
from rankup.world import World


def state(tensors: int, elements: int) -> dict[str, torch.Tensor]:
    return {f"layer{number}": torch.randn(elements) for number in range(tensors)}


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="rankup-bench-", dir=os.environ.get("RANKUP_BENCH_DISK")))


def timed(save: Callable[[Path], float | None]) -> Play:
    """Measures ``save`` into a new directory each round. If it returns seconds, these count."""

    def play() -> float:
        folder = scratch()
        try:
            os.sync()  # write earlier data first, so that it does not count here
            began = time.perf_counter()
            own = save(folder / "snapshots")
            return time.perf_counter() - began if own is None else own
        finally:
            shutil.rmtree(folder)

    return play


def disk(**size: int) -> Play:
    tensors = state(**size)

    def save(folder: Path) -> None:
        with folder.open("wb", buffering=0) as file:
            for tensor in tensors.values():
                file.write(as_bytes(tensor))
            os.fsync(file.fileno())

    return timed(save)


def torch_save(**size: int) -> Play:
    tensors = state(**size)

    def save(folder: Path) -> None:
        with folder.open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())

    return timed(save)


def dcp_save(**size: int) -> Play:
    tensors = state(**size)

    def save(folder: Path) -> None:
        dcp.save(tensors, checkpoint_id=folder, no_dist=True)

    return timed(save)


def dcp_async(**size: int) -> Play:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensors = state(**size)

    def save(folder: Path) -> float:
        began = time.perf_counter()
        written = dcp.async_save(tensors, checkpoint_id=folder)
        seconds = time.perf_counter() - began
        written.result()
        return seconds

    return timed(save)


def ours(whole: bool, asynchronous: bool = True, **size: int) -> Play:
    tensors = state(**size)
    # A third are weights, the rest are Adam's moments, which do not change until the optimizer steps.
    moments = list(tensors.values())[len(tensors) // 3 :]
    saved = SnapshotState(tensors, stable=frozenset(map(id, moments)))
    left, right = torch.randn(600, 600), torch.randn(600, 600)

    def compute() -> float:
        """Takes about as long as forward and backward of the next step."""
        began = time.perf_counter()
        for _ in range(8):
            left @ right
        return time.perf_counter() - began

    root = _kept()
    saver = Saver(root, World(), asynchronous=asynchronous)

    def play() -> float:
        os.sync()
        alone = compute()
        began = time.perf_counter()
        saver.save(1, saved)
        stalled = time.perf_counter() - began
        if not whole:
            stalled += compute() - alone  # the copy makes this step slower
            stepping = time.perf_counter()
            saver.wait_staged()
            stalled += time.perf_counter() - stepping
        saver.wait()
        finished = time.perf_counter() - began
        for entry in entries(root):
            shutil.rmtree(entry.path)
        return finished if whole else stalled

    return play


def torch_load(**size: int) -> Play:
    tensors, file = state(**size), _kept() / "state.pt"
    torch.save(tensors, file)

    def play() -> None:
        for name, tensor in torch.load(file, weights_only=True).items():
            tensors[name].copy_(tensor)

    return play


def dcp_load(**size: int) -> Play:
    tensors, folder = state(**size), _kept()
    dcp.save(tensors, checkpoint_id=folder, no_dist=True)

    def play() -> None:
        dcp.load(tensors, checkpoint_id=folder, no_dist=True)

    return play


def our_load(**size: int) -> Play:
    saved = SnapshotState(state(**size))
    saver = Saver(_kept(), World(), asynchronous=False)
    saver.save(1, saved)

    def play() -> None:
        found = saver.newest()
        assert found is not None
        found.load_tensors(saved.tensors)

    return play


def _kept() -> Path:
    """A directory that stays until the process ends."""
    folder = scratch()
    atexit.register(shutil.rmtree, folder)
    return folder


CONTENDERS: dict[str, Callable[..., Play]] = {
    "disk: write and fsync": disk,
    "torch.save and fsync": torch_save,
    "dcp.save": dcp_save,
    "dcp.async_save, stall": dcp_async,
    "ours, stall": partial(ours, whole=False),
    "ours, whole": partial(ours, whole=True),
    "ours, synchronous": partial(ours, whole=True, asynchronous=False),
    "torch.load": torch_load,
    "dcp.load": dcp_load,
    "ours, verify and load": our_load,
}


def run(quick: bool) -> Result:
    size = {"tensors": 40, "elements": 10_000 if quick else 1_000_000}
    rounds = contest(
        "snapshots", CONTENDERS, size, threads=1, rounds=3 if quick else 9, processes=1 if quick else 2
    )
    claims = [
        Claim("our stall / dcp.save", "ours, stall", "dcp.save", 0.08, at_most=True),
        Claim("our stall / torch.save and fsync", "ours, stall", "torch.save and fsync", 0.05, at_most=True),
        Claim("our stall / dcp.async_save's", "ours, stall", "dcp.async_save, stall", None, at_most=True),
        Claim("ours, whole / disk", "ours, whole", "disk: write and fsync", 1.5, at_most=True),
        Claim("ours, synchronous / disk", "ours, synchronous", "disk: write and fsync", 1.5, at_most=True),
        Claim(
            "ours, verify and load / torch.load", "ours, verify and load", "torch.load", None, at_most=True
        ),
        Claim("ours, verify and load / dcp.load", "ours, verify and load", "dcp.load", None, at_most=True),
    ]
    settings = {
        "tensors": size["tensors"],
        "elements of each": size["elements"],
        "dtype": "float32",
        "threads": 1,
    }
    notes = ["Ours hashes every byte with SHA-256 while it writes; the others do not hash."]
    return Result("snapshots", "Saving and loading a state of 160 MB", "s", settings, rounds, claims, notes)
