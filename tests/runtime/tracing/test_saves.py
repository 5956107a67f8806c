"""A script that is interrupted in the middle of a save, whichever way it writes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankup.core.records import read_records
from rankup.verify.attempts import STARTUP

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("warm_python")]

SCRIPT = """\
import io, os, pickle, sys, tempfile
import torch

state = {"x": torch.arange(4096.0)}
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)

def safetensors(path):
    from safetensors.torch import save_file
    save_file(state, path)

def pickled(path):
    with open(path, "wb") as file:
        pickle.dump(state["x"].numpy().tobytes(), file)

def through_a_file(path):
    with open(path, "wb") as file:
        torch.save(state, file)

def from_memory(path):
    memory = io.BytesIO()
    torch.save(state, memory)
    fd, name = tempfile.mkstemp(dir=".")
    os.write(fd, memory.getvalue())
    os.close(fd)
    os.rename(name, path)

save = {"torch": lambda path: torch.save(state, path)}.get(sys.argv[1]) or globals()[sys.argv[1]]
for step in range(1, 4):
    parameter.grad = torch.ones(1)
    optimizer.step()
    with open("log.txt", "a") as log:
        log.write("a line\\n")
    save(f"{step}.tmp")
    os.replace(f"{step}.tmp", f"{step}.done")
"""


@pytest.mark.parametrize(
    ("writer", "in_memory"),
    [
        ("torch", False),
        ("safetensors", False),
        pytest.param("pickled", False, marks=pytest.mark.campaign),
        pytest.param("through_a_file", False, marks=pytest.mark.campaign),
        pytest.param("from_memory", True, marks=pytest.mark.campaign),
    ],
)
def test_half_of_the_file_is_on_disk_and_nothing_has_followed(tmp_path: Path, writer: str, in_memory: bool):
    trace, mine = tmp_path / "verify" / "trace-01", tmp_path / "mine"
    trace.mkdir(parents=True)
    mine.mkdir()
    (mine / "script.py").write_text(SCRIPT)
    env = {
        **os.environ,
        "PYTHONPATH": str(STARTUP),
        "RANKUP_TRACE": str(trace),
        "RANKUP_WRITTEN": str(trace.parent),
        # The first save after step 2; one in memory is a save of its own.
        "RANKUP_INTERRUPT": f"writing 2 0 {1 + in_memory}",
    }
    process = subprocess.Popen(
        [sys.executable, "script.py", writer], cwd=mine, env=env, start_new_session=True
    )
    try:
        ends = time.monotonic() + 240
        while not (trace / "frozen").exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
        assert (trace / "frozen").read_text() == "writing"
        names = {path.name: path.stat().st_size for path in mine.iterdir()}
        whole = names.pop("1.done")
        del names["script.py"], names["log.txt"]
        assert len(names) == 1 and not any(name.endswith(".done") for name in names)
        assert [*names.values()] == [whole // 2]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.campaign
def test_saves_are_counted_where_no_files_are_kept(tmp_path: Path):
    trace = tmp_path / "trace"
    trace.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "RANKUP_TRACE": str(trace)}
    subprocess.run([sys.executable, "script.py", "torch"], cwd=tmp_path, env=env, check=True, timeout=240)
    records = read_records(trace / "rank-0.jsonl")
    assert [record["saved"] for record in records if "saved" in record] == [0, 1, 1, 1]


COLLECTIVES = """\
import torch
import torch.distributed as dist
from rankup.runtime.tracing.saves import SAVES

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.zeros(1)
for name, takes_part in {
    "barrier": dist.barrier,
    "all_reduce": lambda: dist.all_reduce(x),
    "reduce": lambda: dist.reduce(x, 0),
    "broadcast": lambda: dist.broadcast(x, 0),
    "all_gather": lambda: dist.all_gather([x], x),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(1), x),
    "gather": lambda: dist.gather(x, [torch.zeros(1)]),
    "scatter": lambda: dist.scatter(x, [torch.zeros(1)]),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.zeros(1), x),
    "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(1), x),
    "all_gather_object": lambda: dist.all_gather_object([None], 1),
    "gather_object": lambda: dist.gather_object(1, [None]),
    "scatter_object_list": lambda: dist.scatter_object_list([None], [1]),
    "broadcast_object_list": lambda: dist.broadcast_object_list([1]),
}.items():
    with open(name, "wb") as file:
        file.write(b"half")
        dist.get_rank(), dist.get_world_size(), dist.get_backend()
        file.write(b"half")
    takes_part()
    print(name, SAVES.made[-1:] == [(name, 8)])
"""


def test_what_a_rank_has_written_is_complete_when_a_collective_begins(tmp_path: Path):
    # The other ranks go on from it: they may write what a kill in the save does not leave.
    trace, mine = tmp_path / "verify" / "trace-01", tmp_path / "mine"
    trace.mkdir(parents=True)
    mine.mkdir()
    (mine / "script.py").write_text(COLLECTIVES)
    env = {
        **os.environ,
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "RANKUP_TRACE": str(trace),
        "RANKUP_WRITTEN": str(trace.parent),
    }
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=mine,
        env=env,
        check=True,
        timeout=240,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 14 and all(line.endswith(" True") for line in lines), lines
