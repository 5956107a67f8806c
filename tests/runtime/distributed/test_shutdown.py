"""How ranks part: a rank that raises takes the others with it within seconds, and nothing keeps it from ending."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ranks
from rankup.runtime.distributed import shutdown

RAISES = """
import threading, time, torch, rankup
run = rankup.init()
net = torch.nn.Linear(2, 1)
model, opt, data = run.prepare(net, lambda p: torch.optim.SGD(p, lr=.1),
                               rankup.ResidentData(torch.ones(40, 2)), global_batch=2)
for number, x in enumerate(run.steps(data, epochs=10)):
    if number == 3 and run.world.rank == 1:
        threading.Thread(target=time.sleep, args=(600,)).start()  # a library's thread that waits for nothing
        raise ValueError("rank one has had enough")
    model(x).sum().backward()
    opt.step()
"""


def start(
    script: Path, rank: int, world_size: int, port: int, python: Path | str = sys.executable
) -> subprocess.Popen[str]:
    env = {
        "PATH": "/usr/bin:/bin",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen([python, script], env=env, stderr=subprocess.PIPE, text=True)


def test_a_rank_that_raises_ends_all_though_a_thread_of_it_would_live_on(tmp_path, warm):
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    port = ranks.free_port()
    processes = [start(script, rank, 2, port, warm / "python") for rank in range(2)]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert "ValueError: rank one has had enough" in errors[1]
    assert "ValueError" not in errors[0] and "Traceback" in errors[0]  # its collective lost a peer
    assert all(process.returncode != 0 for process in processes)


MEETS = """
import rankup, torch.distributed as dist
run = rankup.init()
print(run.sum(run.world.rank + 1))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ranks_that_end_well_leave_no_complaint(tmp_path):
    script = tmp_path / "meets.py"
    script.write_text(MEETS)
    port = ranks.free_port()
    processes = [start(script, rank, 2, port) for rank in range(2)]
    for process in processes:
        _, error = process.communicate(timeout=800)
        assert (process.returncode, error) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are in Linux's /proc")
def test_leaving_waits_for_a_thread_that_works_outside_of_the_interpreter(monkeypatch):
    monkeypatch.setattr(shutdown, "SETTLE_S", 60)
    work = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 300_000))  # lets the GIL go
    work.start()
    while not shutdown._others_running():
        time.sleep(0.001)
    shutdown.settle()
    assert not work.is_alive()
