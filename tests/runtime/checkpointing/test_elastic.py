"""Under torchrun's restarts: a killed rank, a node that dies, a node that comes later. The weights stay the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ranks import free_port

pytestmark = pytest.mark.usefixtures("warm_python")

SCRIPT = Path(__file__).parent / "elastic.py"
BEHIND = re.compile(r"rank (\d+) of (\d+), process (\d+), is behind step (\d+)\.")
ENDS = re.compile(r"rank (\d+) of (\d+) ends with (\w+)\.")


class Agent:
    """A torchrun agent, as one per node has; its node dies with all that runs on it."""

    def __init__(self, folder: Path, log: str, port: int, *, head: bool) -> None:
        self.log = folder / log
        # A node that is gone is noticed after ten seconds, and one that may still come is waited for two.
        patience = "last_call_timeout=2,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=10"
        with self.log.open("wb") as file:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc_per_node=1"),
                    *("--max_restarts=3", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}"),
                    *("--rdzv_id=elastic", f"--rdzv_conf={patience},is_host={int(head)}"),
                    *("--local_addr=127.0.0.1", str(SCRIPT), str(folder)),
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # torch 2.13 tells a node that comes later no address, if agents share their store.
                env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            )

    def said(self) -> str:
        return self.log.read_text()

    def until(self, done: Callable[[str], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not done(self.said()):
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def crash(self) -> None:
        self._process.kill()
        for _, _, process, _ in BEHIND.findall(self.said()):
            os.kill(int(process), signal.SIGKILL)
        self._process.wait()

    def end(self) -> int | None:
        """Its exit code; None if it does not end, so that the test shows what was said."""
        try:
            return self._process.wait(timeout=100)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # it ends its workers
            self._process.wait()


def two_are_behind(said: str) -> bool:
    return "2" in {size for _, size, _, _ in BEHIND.findall(said)}


@contextmanager
def agents(folder: Path) -> Iterator[Callable[..., Agent]]:
    started: list[Agent] = []
    port = free_port()

    def start(log: str, *, head: bool) -> Agent:
        started.append(Agent(folder, log, port, head=head))
        return started[-1]

    try:
        yield start
    finally:
        for agent in started:
            agent.stop()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an uninterrupted training in one process ends with."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True)
    return str(ENDS.findall(done.stdout)[0][2])


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_goes_on_from_the_last_snapshot(tmp_path: Path, expected: str):
    (tmp_path / "kill-1").touch()
    words = ("run", "--nproc-per-node", "2", "--max-restarts", "1", str(SCRIPT), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "rankup", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed from step-6" in done.stdout
    assert [end[2] for end in ENDS.findall(done.stdout)] == [expected] * 2


@pytest.mark.slow
def test_when_a_node_dies_the_other_goes_on_alone(tmp_path: Path, expected: str):
    (tmp_path / "wait").touch()
    with agents(tmp_path) as start:
        head, other = start("head", head=True), start("other", head=False)
        for agent in (head, other):  # on a busy machine one begins alone, and again when the other has come
            agent.until(two_are_behind)
        other.crash()
        (tmp_path / "wait").unlink()
        assert head.end() == 0, head.said()
    assert {size for _, size, _, _ in BEHIND.findall(head.said())} == {"2", "1"}
    assert "resumed from step-" in head.said()
    assert [end[1:] for end in ENDS.findall(head.said())] == [("1", expected)]


@pytest.mark.slow
def test_a_node_that_comes_later_takes_its_part_from_the_step_reached(tmp_path: Path, expected: str):
    (tmp_path / "wait").touch()
    with agents(tmp_path) as start:
        head = start("head", head=True)
        head.until(BEHIND.search)
        other = start("other", head=False)
        # The other may begin alone; if it ended so, it would close the rendezvous.
        for agent in (head, other):
            agent.until(two_are_behind)
        (tmp_path / "wait").unlink()
        assert (head.end(), other.end()) == (0, 0), head.said() + other.said()
    both = head.said() + other.said()
    # Asked to end, so that two could begin, it saved where it was: nothing was trained twice.
    assert "stopped as asked after step 7" in head.said()
    assert "resumed from step-7" in both
    assert [end[1:] for end in ENDS.findall(both)] == [("2", expected)] * 2
