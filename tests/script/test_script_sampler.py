"""The sampler of a job's script: rankup's own where the program's Python has it, else nvidia-smi; and none is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import psutil
import pytest

from rankup.core.records import read_records

PARTS = files("rankup.script").joinpath("parts")
SMI = """#!/bin/sh
echo $$ >>"$RUN/smi"
echo timestamp, index
exec sleep 600
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "records").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "sampler.sh").write_text(PARTS.joinpath("sampler.sh").read_text())
    return tmp_path


def program(run: Path, name: str, text: str) -> None:
    path = run / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(params=["sh", "bash"])
def rank(run: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def rank(*command: str, local_rank: int = 0) -> subprocess.Popen[str]:
        env = {**os.environ, "RUN": str(run), "LOCAL_RANK": str(local_rank)}
        env["PATH"] = f"{run}/bin:/usr/bin:/bin"
        words = [request.param, str(PARTS.joinpath("rank.sh")), *command]
        started.append(
            subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        return started[-1]

    yield rank
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a rank whose shell was killed still lives
        process.communicate()
    until(lambda: not left(run))


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def left(run: Path) -> list[psutil.Process]:
    """Samplers of this run that live, whatever program they are."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("RUN") == str(run) and process.status() != psutil.STATUS_ZOMBIE
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if mine and ("rankup.monitor" in line or "sampler.sh" in line or line.startswith("sleep 600")):
            found.append(process)
    return found


def samples(run: Path) -> list[dict[str, object]]:
    return [one for path in run.glob("records/utilization-*") for one in read_records(path)]


@pytest.mark.parametrize("how", ["end", "kill"])
def test_rankups_sampler_runs_as_long_as_the_rank(
    run: Path, rank: Callable[..., subprocess.Popen[str]], how: str
):
    process = rank(
        sys.executable,
        "-c",
        "import sys; sys.stdin.read()" if how == "end" else "import time; time.sleep(999)",
    )
    if how == "kill":
        os.kill(process.pid, signal.SIGKILL)  # the shell of the rank alone: nobody tells the sampler
    process.wait(30)
    until(lambda: not left(run))


@pytest.mark.repeated
def test_of_several_ranks_on_a_node_one_starts_it(run: Path, rank: Callable[..., subprocess.Popen[str]]):
    process = rank(sys.executable, "-c", "import time; time.sleep(3)", local_rank=1)
    assert process.wait(30) == 0 and not left(run) and not samples(run)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_without_rankup_nvidia_smi_is_asked(run: Path, rank: Callable[..., subprocess.Popen[str]], how: str):
    program(run, "nvidia-smi", SMI)
    program(run, "python", "#!/bin/sh\nexit 1\n")
    process = rank("bash", "-c", "while [ ! -e $RUN/go ]; do sleep 0.05; done")
    until((run / "smi").exists)
    [file] = run.glob("records/nvidia-smi-*.csv")
    until(lambda: "timestamp, index" in file.read_text())
    if how == "kill":
        os.kill(process.pid, signal.SIGKILL)  # the shell of the rank alone: nobody tells the sampler
    (run / "go").touch()
    process.wait(30)
    until(lambda: not left(run))


def test_without_either_the_rank_runs_all_the_same(run: Path, rank: Callable[..., subprocess.Popen[str]]):
    program(run, "python", "#!/bin/sh\nexit 1\n")
    process = rank("sh", "-c", "echo trained; exit 3")
    out, _ = process.communicate(timeout=240)
    assert (out, process.returncode) == ("trained\n", 3)
    until(lambda: not left(run))


def test_the_program_is_never_asked_whether_it_has_rankup(
    run: Path, rank: Callable[..., subprocess.Popen[str]]
):
    """Only a Python is: another program would be started twice."""
    program(run, "solver", '#!/bin/sh\necho "$@" >>"$RUN/started"\n')
    assert rank("solver", "mesh").wait(30) == 0
    until(lambda: not left(run))
    assert (run / "started").read_text() == "mesh\n"


def test_a_slow_end_of_the_sampler_delays_no_rank(run: Path, rank: Callable[..., subprocess.Popen[str]]):
    """It has none of the rank's pipes."""
    process = rank(sys.executable, "-c", "print('done')")
    out, _ = process.communicate(timeout=240)  # reads to the end of the pipe
    assert out == "done\n"
