"""What is a step of any script, and what belongs to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankup.core.records import read_records
from rankup.verify.attempts import STARTUP

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("warm_python")]

MAKES_STATE = """\
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict

net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    opt.zero_grad()
    get_state_dict(net, opt)
    net(torch.ones(1, 2)).sum().backward()
    opt.step()
"""


def steps_of(tmp_path: Path, script: str) -> list[dict[str, Any]]:
    trace = tmp_path / "trace"
    trace.mkdir()
    (tmp_path / "script.py").write_text(script)
    path = f"{STARTUP}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": path, "RANKUP_TRACE": str(trace)}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, check=True, timeout=240)
    return [record for record in read_records(trace / "rank-0.jsonl") if "batches" in record]


def test_a_step_by_which_torch_makes_the_optimizer_s_state_is_none_of_the_script(tmp_path: Path):
    steps = steps_of(tmp_path, MAKES_STATE)
    assert [(step["step"], step["before"]["lr"], len(step["loss"])) for step in steps] == [
        (1, [0.1], 1),
        (2, [0.1], 1),
    ]


ENDS = """\
import threading, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{__file__}.meeting", rank=0, world_size=1)
ended = []

def works():
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    ended.append(1)

threading.Thread(target=works).start()
dist.destroy_process_group()
print(ended, dist.is_initialized())
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(1, 2)).sum().backward()
opt.step()
"""


def test_a_group_ends_when_no_other_thread_runs_any_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    steps_of(tmp_path, ENDS)
    assert capfd.readouterr().out == "[1] False\n"


SKIPS = """\
import torch

net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(2):
    for n, x in enumerate(torch.utils.data.DataLoader(torch.ones(5, 2))):
        scaler.scale(net(x).sum()).backward()
        if n in (0, 2, 4):
            net.weight.grad.fill_(torch.inf)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
"""


def test_what_a_scaled_step_that_was_skipped_took_is_of_no_step(tmp_path: Path):
    steps = steps_of(tmp_path, SKIPS)
    # Else a process that is resumed after it, and takes its batch no more, has lost gradients.
    assert [(step["rows"], step["epoch"]) for step in steps] == [([1], 1), ([3], 1), ([1], 2), ([3], 2)]
    assert {(len(step["loss"]), len(step["inputs"])) for step in steps} == {(1, 1)}
    assert [step["epoch_end"] for step in steps] == [False, False, True, False]
