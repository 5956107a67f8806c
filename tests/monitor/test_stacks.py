"""Stacks on request, with a stand-in for py-spy; of the run's own processes and of no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.monitor import stacks
from rankup.monitor.stacks import answer, answers, ranks_here, request

HOST = os.uname().nodename
SPY = '#!/bin/sh\n[ -z "$FAILS" ] || { echo "Error: $FAILS" >&2; exit 1; }\necho "stack of $4"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("records", "logs", "bin"):
        (tmp_path / name).mkdir()
    spy = tmp_path / "bin" / "py-spy"
    spy.write_text(SPY)
    spy.chmod(0o755)
    monkeypatch.setattr(stacks, "_py_spy", lambda: str(spy))
    return tmp_path


@pytest.fixture
def rank(folder):
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, RUN_DIR_VARIABLE: str(folder)})
    while not Path(f"/proc/{process.pid}/environ").read_bytes():
        time.sleep(0.01)  # the kernel writes it after the moment at which Popen returns
    tell(folder, 3, process.pid)
    yield process
    process.kill()
    process.wait()


def tell(folder, rank, pid, host=HOST):
    text = json.dumps({"kind": "rank", "rank": rank, "pid": pid, "host": host})
    (folder / "records" / f"rank-{rank}.jsonl").write_text(f'{text}\n{{"kind": "ra')


def test_the_ranks_of_this_host_are_asked(folder, rank):
    tell(folder, 4, rank.pid, host="elsewhere")
    tell(folder, 5, os.getpid())  # an id that another process has by now
    tell(folder, 6, 2**22 + 1)
    assert ranks_here(folder, HOST) == [(3, rank.pid)]
    since = request(folder)
    answer(folder, HOST)
    [text] = answers(folder, since).values()
    assert text == f"==== rank 3, process {rank.pid} on {HOST} ====\nstack of {rank.pid}\n"


def test_an_answer_to_an_earlier_request_is_none(folder, rank):
    answer(folder, HOST)
    [path] = folder.glob("logs/stacks-*.txt")
    os.utime(path, (1, 1))
    assert answers(folder, request(folder)) == {}


def test_a_py_spy_that_fails_says_why(folder, rank, monkeypatch):
    monkeypatch.setenv("FAILS", "Permission Denied")
    since = request(folder)
    answer(folder, HOST)
    assert "py-spy failed: Error: Permission Denied" in answers(folder, since)[HOST]


def test_without_py_spy_the_answer_says_how_to_get_it(folder, rank, monkeypatch):
    monkeypatch.setattr(stacks, "_py_spy", lambda: None)
    since = request(folder)
    answer(folder, HOST)
    assert "pip install py-spy" in answers(folder, since)[HOST]


def test_the_sampler_of_a_node_answers(folder, rank):
    command = [sys.executable, "-m", "rankup.monitor", str(folder)]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 240
        while not list(folder.glob("records/utilization-*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        since = request(folder)
        while not answers(folder, since):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert "rank 3" in answers(folder, since)[HOST]


def test_a_sampler_imports_nothing_for_stacks_before_it_is_asked():
    code = "import sys, rankup.monitor.sampler; print('rankup.monitor.stacks' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# Two ranks of a training: one hangs in a function of its own, the other waits for it in a barrier.
HANGS = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
def hangs_here():
    print(os.getpid(), flush=True)
    time.sleep(600)
if dist.get_rank() == 1:
    hangs_here()
print(os.getpid(), flush=True)
dist.barrier()
"""


@pytest.mark.skipif(stacks._py_spy() is None, reason="py-spy is not installed")
def test_the_real_py_spy_tells_where_two_ranks_are(tmp_path, warm):
    for name in ("records", "logs"):
        (tmp_path / name).mkdir()
    ranks = [
        subprocess.Popen(
            [warm / "python", "-c", HANGS, str(tmp_path / "store"), str(rank)],
            env={**os.environ, RUN_DIR_VARIABLE: str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank, process in enumerate(ranks):
            tell(tmp_path, rank, int(process.stdout.readline()))
        deadline = time.monotonic() + 240
        while "hangs_here (<string>" not in (text := asked(tmp_path)) or "barrier (" not in text:
            if "py-spy failed: Permission" in text or "Operation not permitted" in text:
                pytest.skip("this system lets root alone look into processes")
            assert time.monotonic() < deadline, text
            time.sleep(0.2)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    of_rank_0, of_rank_1 = text.split("==== rank 1")
    assert "barrier" in of_rank_0 and "hangs_here" in of_rank_1


def asked(folder: Path) -> str:
    since = request(folder)
    answer(folder, HOST)
    return answers(folder, since)[HOST]
