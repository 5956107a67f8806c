"""One rank of a large run, in a process of its own: what a start, a step, a save, an epoch's end and a resume cost.

The training is a real one with ``rankup.init``, ``run.prepare`` (ddp, Adam) and ``run.epochs``; the other ranks are
pretended (``pretended_ranks.py``). ``simulate`` trains as rank 0, ends without warning, and resumes; then the same as
rank 1, an ordinary one; then a plain DDP loop, whose share of a step is not rankup's.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import rankup
import rankup.runtime.init  # before the fork: else each process imports it
from benchmarks.pretended_ranks import Others, PretendedRanks, Tally, Written, written
from benchmarks.steps import network
from rankup.core.rundir import RUN_DIR_VARIABLE, RunDir
from rankup.snapshots.layout import entries, states_file
from rankup.snapshots.manifest import read_manifest

PER_NODE = 8

Costs = dict[str, float]


@dataclass(frozen=True)
class Schedule:
    """In steps, with one sample per rank in each. ``every``: between saves, of which an epoch has three; none may be in
    a step in which ranks compare gradients (1, 2, 4, 8, …). ``resumed``: that are trained after a resume."""

    epoch: int = 17
    every: int = 5
    resumed: int = 1

    @property
    def saves(self) -> tuple[int, int, int]:
        return self.every, 2 * self.every, 3 * self.every


@dataclass(frozen=True)
class Work:
    """What one process does. ``kind``: rankup, resume, plain, order."""

    kind: str
    world_size: int
    rank: int
    tensors: int
    folder: Path
    schedule: Schedule = Schedule()


class Samples(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """``samples`` equal ones, which need no memory."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._x, self._y = torch.ones(64), torch.tensor(1)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < self._samples:
            raise IndexError(index)
        return self._x, self._y


# ------------------------------------------------------------------------ meters


class Meter:
    """Costs between two calls: messages, files below ``folder``, CPU time without the network's, memory at its peak."""

    def __init__(self, tally: Tally, folder: Path) -> None:
        self._tally = tally
        _count_files(tally, str(folder))
        self.begin()

    def begin(self) -> None:
        self._counts = Counter(self._tally.counts)
        self._resident = status("VmRSS")
        forget_peak()
        self._began = time.process_time() - self._tally.away, time.perf_counter()

    def costs(self) -> Costs:
        """Since ``begin``."""
        cpu, wall = time.process_time() - self._tally.away, time.perf_counter()
        found: Costs = dict(Counter(self._tally.counts) - self._counts)
        return {
            **found,
            "cpu s": cpu - self._began[0],
            "wall s": wall - self._began[1],
            "memory bytes": max(0, status("VmHWM") - self._resident),
        }


def status(field: str) -> int:
    """A number of bytes that the kernel tells of this process; 0 where there is no /proc."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _count_files(tally: Tally, folder: str) -> None:
    directory = ("os.mkdir", "os.rename", "os.remove", "os.listdir", "os.scandir", "os.rmdir")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(folder):
            tally.add("files opened")
            if args[2] & (os.O_WRONLY | os.O_RDWR):
                tally.add("files written")
        elif event in directory and str(args[0]).startswith(folder):
            tally.add("directory operations")

    sys.addaudithook(hook)

    def counted(function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            if isinstance(path, int) or os.fspath(path).startswith(folder):
                tally.add(what)
            return function(path, *args, **options)

        return call

    os.stat, os.lstat = counted(os.stat, "stats"), counted(os.lstat, "stats")
    os.fsync = counted(os.fsync, "fsyncs")


# ---------------------------------------------------------------- what a process does


def _environment(work: Work) -> dict[str, str]:
    """As torchrun gives it to one process of eight on each node."""
    node, local = divmod(work.rank, PER_NODE)
    return {
        "RANK": str(work.rank),
        "WORLD_SIZE": str(work.world_size),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(PER_NODE),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(work.world_size // PER_NODE),
        "TORCHELASTIC_RUN_ID": "scale-out",
        "TORCHELASTIC_RESTART_COUNT": str(int(work.kind == "resume")),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29400",
        **({} if work.kind == "order" else {RUN_DIR_VARIABLE: str(work.folder)}),
    }


class Notes:
    """The costs of each part of a training, told by the training in its body: ``goal`` is its last step."""

    def __init__(self, work: Work, answers: Written) -> None:
        plan = work.schedule
        self.goal = plan.saves[-1] + plan.resumed if work.kind == "resume" else plan.epoch + 2
        saves = {**dict.fromkeys(plan.saves, "save"), plan.every: "first save"}
        self.parts = {} if work.kind == "plain" else {plan.epoch: "end of an epoch", **saves}
        self.found: dict[str, Any] = {}
        others, tally = Others(work.world_size, PER_NODE, work.rank, answers), Tally()
        self.meter = Meter(tally, work.folder)
        self._pretended = PretendedRanks(others, tally)
        self._steps: list[Costs] = []
        self._before = _descriptors()

    def batch(self, done: int) -> bool:
        """The next batch is there, after ``done`` steps; whether it was the last one."""
        costs = self.meter.costs()
        if not self.found:
            self.found["start"] = costs
        elif done in self.parts:
            self.found[self.parts[done]] = costs
        else:
            self._steps.append(costs)
        self.meter.begin()
        if done < self.goal:
            return False
        connected = {
            "descriptors": _descriptors() - self._before,
            "neighbours": self._pretended.neighbours(),
            "groups": len(self._pretended.groups),
        }
        self.found |= {"step": _typical(self._steps), "steps": _mean(self._steps), "run": connected}
        return True

    def trained(self, done: int) -> None:
        """The body of step ``done`` is at its end: what follows until the next batch is between the steps."""
        if done in self.parts:
            self.meter.begin()


def _train(work: Work, notes: Notes) -> None:
    run = rankup.init(
        device="cpu", snapshots=rankup.Snapshots(every=f"{work.schedule.every} steps", asynchronous=False)
    )
    model, optimizer, data = run.prepare(
        network(work.tensors),
        lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        Samples(work.world_size * work.schedule.epoch),
        global_batch=work.world_size,
    )
    run.forget("notes")
    for epoch in run.epochs(2, data):
        for x, y in epoch:
            if notes.batch(run.global_step):
                return
            loss = F.cross_entropy(model(x), y)
            run.backward(loss)
            run.step(optimizer)
            notes.trained(run.global_step + 1)


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def _typical(steps: Sequence[Costs]) -> Costs:
    """The median of each cost: steps in which ranks compare something are few."""
    names = {name for step in steps for name in step}
    return {name: statistics.median(step.get(name, 0) for step in steps) for name in sorted(names)}


def _mean(steps: Sequence[Costs]) -> Costs:
    names = {name for step in steps for name in step}
    return {name: statistics.fmean(step.get(name, 0) for step in steps) for name in sorted(names)}


def _plain(work: Work, notes: Notes) -> None:
    """The same steps of DDP alone."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network(work.tensors))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(DataLoader(Samples(work.schedule.epoch + 3), batch_size=1)):
        if notes.batch(step):
            return
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def _order(work: Work, notes: Notes) -> None:
    """From the data to the first batch, of a small data set and of 10¹² samples, without snapshots."""
    run = rankup.init(device="cpu")
    model: Any = network(4)
    given: Any = lambda parameters: torch.optim.SGD(parameters, lr=0.1)  # noqa: E731
    for samples in (10 * work.world_size, 10**12):
        model, _, data = run.prepare(model, given, Samples(samples), global_batch=work.world_size)
        given = None
        notes.meter.begin()
        loop = run.steps(data, epochs=1)
        next(iter(loop))
        notes.found[f"{samples:.0e} samples"] = notes.meter.costs()
        loop.close()


# ---------------------------------------------------------------------- processes


def _process(work: Work, answers: Written, pipe: Connection) -> None:
    os.environ.update(_environment(work))
    torch.set_num_threads(1)
    # Whether gloo would find enough descriptors is said in the result, and must not end the simulation.
    resource.getrlimit = lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    notes = Notes(work, answers)
    notes.meter.begin()
    {"plain": _plain, "order": _order}.get(work.kind, _train)(work, notes)
    pipe.send_bytes(pickle.dumps((notes.found, written())))
    os._exit(0)  # as after kill -9


def _run(work: Work, answers: Written) -> tuple[dict[str, Any], Written]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_process, args=(work, answers, theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[dict[str, Any], Written] = pickle.loads(ours.recv_bytes())  # noqa: S301
    except EOFError:
        raise SystemExit(f"{work} ended without a result") from None
    finally:
        process.join()
    return found


def simulate(
    world_size: int, tensors: int, folder: Path, schedule: Schedule = Schedule()
) -> dict[str, dict[str, Any]]:
    """The costs of rank 0, of an ordinary rank, and of plain DDP: {who: {part: {what: number}}}."""
    run = RunDir.create(folder, "scale-out")
    first = Work("rankup", world_size, 0, tensors, run.path, schedule)
    again = replace(first, kind="resume")
    leading, told = _run(first, {})
    leading["snapshot"] = _write_of_other_nodes(run.path / "snapshots")
    resumed, told_again = _run(again, {})
    ordinary, _ = _run(replace(first, rank=1), told)
    ordinary_resumed, _ = _run(replace(again, rank=1), told_again)
    plain, _ = _run(replace(first, kind="plain"), {})
    return {
        "rank 0": {**leading, "resume": resumed["start"]},
        "rank 1": {**ordinary, "resume": ordinary_resumed["start"]},
        "plain DDP": plain,
    }


def order(world_size: int, folder: Path) -> dict[str, Any]:
    """The costs of the first batch on the last rank, of a small data set and of 10¹² samples."""
    return _run(Work("order", world_size, world_size - 1, 4, folder), {})[0]


def _write_of_other_nodes(snapshots: Path) -> Costs:
    """The files of states that the other nodes would have written, as links to node 0's; what the last snapshot has."""
    found: Costs = {}
    for entry in entries(snapshots):
        manifest = read_manifest(entry.path)
        for name in manifest.files:
            if not (entry.path / name).exists():
                os.link(entry.path / states_file(0), entry.path / name)
        found = {
            "files": len(list(entry.path.iterdir())),
            "nodes": len({saved.file for saved in manifest.states.values()}),
            "manifest bytes": (entry.path / "manifest.json").stat().st_size,
        }
    return found


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(simulate(int(sys.argv[1]), int(sys.argv[2]), Path(scratch)), indent=1))
