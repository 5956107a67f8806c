"""``rankup run`` starts a sampler on each node; none is left, whatever ends the run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rankup.core.records import read_records
from rankup.core.rundir import RunDir
from rankup.resolve.here import resolve_here
from rankup.run import agents
from rankup.run.allocation import Allocation
from rankup.run.attempts import job_script
from rankup_process import Started, processes_mentioning, script

# Trains until there are samples, and tells who its parents are.
UNTIL_SAMPLED = """
import os, pathlib, sys, time
records = pathlib.Path(os.environ["RANKUP_RUN_DIR"]) / "records"
while not any(file.read_bytes().count(b"\\n") > 1 for file in records.glob("utilization-*.jsonl")):
    time.sleep(0.05)
pathlib.Path("sampled").write_text(os.environ["RANKUP_RUN_DIR"])
if sys.argv[1:]:
    time.sleep(600)
"""


def sampler_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "rankup.monitor" in line and any(str(folder) in word for word in line):
            found.append(process)
    return found


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("ranks", [pytest.param("1", marks=pytest.mark.campaign), "2"])
def test_a_run_is_sampled_while_it_lasts(tmp_path, ranks):
    run = Started(tmp_path, "--nproc-per-node", ranks, script(tmp_path, UNTIL_SAMPLED)).end()
    assert run.code == 0, run.err
    [file] = run.run_dir.glob("records/utilization-*.jsonl")
    assert len(read_records(file, "sample")) >= 2
    assert sampler_of(tmp_path) == []


@pytest.mark.slow
def test_modules_in_the_scripts_folder_are_not_the_samplers(tmp_path):
    for name in ("psutil.py", "json.py", "rankup.py"):
        script(tmp_path, "raise SystemExit('not this one')", name)
    name = script(tmp_path, "import sys; sys.path.pop(0)\n" + UNTIL_SAMPLED)
    command = [Path(sys.executable).with_name("rankup"), "run", name]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.repeated
@pytest.mark.parametrize("whom", ["rankup", "launcher", "sampler"])
def test_no_sampler_is_left_after_a_kill(tmp_path, whom):
    name = script(tmp_path, UNTIL_SAMPLED)
    # What becomes of the run does not depend on a launcher where that is not killed.
    run = Started(tmp_path, "--nproc-per-node", "2" if whom == "launcher" else "1", name, "and waits")
    run.wait_for("sampled")
    [sampler] = sampler_of(tmp_path)
    if whom == "rankup":
        run.send(signal.SIGKILL)
    elif whom == "launcher":
        children = psutil.Process(run.process.pid).children()
        [launcher] = [child for child in children if child != sampler]
        launcher.kill()
    else:
        sampler.kill()  # which changes nothing for the run
        time.sleep(0.2)
        assert run.process.poll() is None
        run.send(signal.SIGINT)
    run.end()
    assert psutil.wait_procs([sampler], timeout=240)[1] == []
    assert run.code == {"rankup": -signal.SIGKILL, "launcher": 1, "sampler": 130}[whom], run.err
    deadline = time.monotonic() + 240  # ranks of a killed launcher end by themselves
    while (left := processes_mentioning(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("how", ["flag", "job.toml"])
def test_a_run_need_not_be_sampled(tmp_path, how):
    name = script(tmp_path, "import time; time.sleep(1.5)")
    (tmp_path / "job.toml").write_text(f'[job]\nscript = "{name}"\nmonitor = false\n')
    run = Started(tmp_path, *(["--no-monitor", name] if how == "flag" else ["job.toml"])).end()
    assert run.code == 0, run.err
    assert list((run.run_dir / "records").iterdir()) == []
    assert "monitor = false\n" in (run.run_dir / "job.toml").read_text()


def test_agents_and_the_run_again_are_told_not_to_sample(tmp_path):
    (tmp_path / "train.py").touch()
    allocation, run = Allocation("slurm", "7", ("a", "b"), inside=False), RunDir(Path("/runs/x"))
    for monitor in (True, False):
        job = resolve_here({"monitor": monitor}, command=("train.py",), folder=tmp_path)
        for text in (agents.agent_command(job, allocation, run), job_script(job.spec)):
            assert (" --no-monitor " in text) is not monitor
