"""Loader workers are shielded from SIGTERM while their rank works, and end with it, however it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import rankup
from rankup.errors import RankupError
from rankup.runtime.data.loader_options import Loader, _iterators

# Each way to end a script; the data set's workers are busy all the while.
SCRIPT = """
import os, signal, sys, time, torch, rankup
how = sys.argv[1]
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        time.sleep(0.02)
        if how == "raises" and i == 40: raise ValueError("bad sample")
        if how == "stops" and i == 40: raise StopIteration
        if how == "killed" and i == 40: os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((1,), float(i))
def collate(samples):
    return torch.stack(samples[1:] if how == "drops" else samples)
run = rankup.init()
model, opt, data = run.prepare(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=.1), Data(), global_batch=4,
                               num_workers=2, persistent_workers=how == "persistent", collate_fn=collate)
peek = run.batches(Data(), global_batch=4, num_workers=2)
if how == "peek":
    next(peek)
steps = run.steps(data, epochs=1)
for number, x in enumerate(steps):
    model(x).sum().backward(); opt.step(); opt.zero_grad()
    if how == "exit" and number == 2: sys.exit(4)
    if how == "interrupt" and number == 2: os.kill(os.getpid(), signal.SIGINT)
    if how == "named" and number == 2: break
print("through")
"""
ENDS = {  # how → (exit code, what is said)
    "persistent": (0, "through"),
    "peek": (0, "through"),
    "named": (0, "through"),
    "exit": (4, ""),
    "interrupt": (-2, "KeyboardInterrupt"),
    "raises": (1, "ValueError: bad sample"),
    "stops": (1, "Data raised StopIteration for one of the samples"),
    "killed": (1, "DataLoader worker (pid"),  # … is killed by signal, or exited: which torch sees first
    "drops": (1, "a batch of 4 samples has 3 rows after collate_fn"),
}


# These end in ways of the interpreter's own; the others do without a Python that has to import torch first.
OWN_PYTHON = ("persistent", "exit", "interrupt")


@pytest.mark.slow
def test_a_script_with_busy_workers_ends_however_it_ends(tmp_path: Path, warm: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    running = {
        how: subprocess.Popen(
            [sys.executable if how in OWN_PYTHON else warm / "python", "train.py", how],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for how in ENDS
    }
    for how, process in running.items():
        said, _ = process.communicate(timeout=120)  # a worker that is left over holds the pipe
        code, expected = ENDS[how]
        assert process.returncode == code, f"{how}: {process.returncode} {said}"
        assert expected in said, f"{how}: {said}"
        if code == 0:
            assert said == "through\n", f"{how}: {said}"


def test_a_script_without_a_main_guard_is_named_where_workers_are_spawned(tmp_path: Path, warm: Path):
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("num_workers=2,", 'num_workers=2, multiprocessing_context="spawn",')
    )
    command = [warm / "python", "train.py", "spawned"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "[no-main-guard]" in done.stderr and "__main__" in done.stderr, done.stderr


class Batched(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices[:-1]


def test_a_data_set_that_gives_too_few_samples_is_named():
    run = rankup.init()
    with pytest.raises(RankupError, match="gave 3 samples for 4 indices"):
        list(run.batches(Batched(), global_batch=4))


def packed(samples: list[int]) -> torch.Tensor:
    return torch.tensor([[*samples, 0]])  # a row of one length, filled up with padding


def packed_with_lengths(samples: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return packed(samples), torch.ones(len(samples))


def test_samples_that_are_joined_in_one_row_are_not_lost_if_the_batch_tells_them():
    def train(collate: Any) -> list[Any]:
        run = rankup.init()
        _, _, data = run.prepare(
            torch.nn.Linear(1, 1),
            lambda p: torch.optim.SGD(p, lr=0.1),
            range(8),
            global_batch=4,
            collate_fn=collate,
        )
        return list(run.steps(data, epochs=1))

    with pytest.raises(RankupError, match="1 rows after collate_fn") as raised:
        train(packed)
    assert "sequence packing" in str(raised.value.hint)
    assert len(train(packed_with_lengths)) == 2


KILLED = """
import os, signal, sys, time, torch, rankup
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.full((1,), float(i))
if __name__ == "__main__":
    run = rankup.init()
    model, opt, data = run.prepare(torch.nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=.1), Data(), global_batch=4,
                                   num_workers=2, multiprocessing_context=sys.argv[1])
    for x in run.steps(data, epochs=1):
        model(x).sum().backward(); opt.step(); opt.zero_grad()
        if run.global_step == 2: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_rank_that_is_killed_whatever_started_them(tmp_path: Path, warm: Path):
    (tmp_path / "train.py").write_text(KILLED)
    running = [
        subprocess.Popen(
            [warm / "python", "train.py", method],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for method in ("fork", "forkserver", "spawn")
    ]
    for process in running:
        process.communicate(timeout=120)  # one that is left over holds the pipe
        assert process.returncode == -9


def test_a_worker_that_is_killed_while_it_hands_over_a_batch_is_named(monkeypatch: pytest.MonkeyPatch):
    batches = iter(Loader(torch.zeros(64, 1), num_workers=1, batch_size=None))
    next(batches)
    (iterator,) = _iterators
    (worker,) = iterator._workers

    def reset_by_peer() -> None:
        threading.Timer(0.3, worker.kill).start()
        raise ConnectionResetError

    monkeypatch.setattr(iterator, "_try_get_data", reset_by_peer)
    with pytest.raises(RuntimeError, match="is killed by signal"):
        next(batches)
