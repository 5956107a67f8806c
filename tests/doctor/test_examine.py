"""Whole examinations of this machine: real agents, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankup.core import shell
from rankup.doctor import launch
from rankup.doctor.examine import Wishes, examine, gather
from rankup.doctor.facts import Facts
from rankup.doctor.plan import Plan
from rankup.doctor.tasks import leave_facts
from rankup.doctor.verdict import judge
from rankup.errors import RankupError


def clean(**more: str) -> dict[str, str]:
    """An environment without a scheduler or a launcher."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", **more}


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def examined(tmp_path: Path, env: dict[str, str], **wishes: Any) -> Any:
    found = examine(Wishes(tmp_path, quick=True, **wishes), env)
    assert found is not None
    return found


def codes(examination: Any) -> list[str]:
    ours = (
        "straggler",
        "little-room",
        "listens-to-all",
        "directory-slow-writes",
        "gpus-unused",
    )  # this machine's
    return [finding.code for finding in examination.findings if finding.code not in ours]


def test_this_machine_alone_has_nothing_wrong(tmp_path: Path):
    found = examined(tmp_path, clean())
    assert [code for code in codes(found) if "shared-memory" not in code] == []
    assert found.facts.part(0, "network") == {"alone": True}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_driver_that_fails_half_way(tmp_path: Path, bin_folder: Path):
    program(
        bin_folder,
        "nvidia-smi",
        'case $1 in -L) echo "GPU 0: NVIDIA H100 (UUID: GPU-a)"; echo "GPU 1: NVIDIA H100 (UUID: GPU-b)";;\n'
        '*) echo "0, GPU-a, NVIDIA H100, 550.54, 0:0, 0, 1, [N/A], Default"\n'
        'echo "Unable to determine the device handle for GPU 1: GPU is lost" >&2; exit 15;; esac',
    )
    found = examined(tmp_path, clean(PATH=f"{bin_folder}:{os.environ['PATH']}"))
    (finding,) = [one for one in found.findings if one.code == "gpu-driver-failed"]
    assert "GPU is lost; 1 of 2 GPUs answer" in finding.message


def test_a_driver_without_devices_is_a_machine_without_gpus(tmp_path: Path, bin_folder: Path):
    program(bin_folder, "nvidia-smi", "echo 'No devices were found'")
    found = examined(tmp_path, clean(PATH=f"{bin_folder}:{os.environ['PATH']}"))
    assert found.facts.part(0, "gpus")["state"] == "none"
    assert "gpu-driver-failed" not in codes(found)


@pytest.mark.slow
def test_a_driver_that_hangs_does_not_hold_up_the_rest(tmp_path: Path, bin_folder: Path):
    program(bin_folder, "nvidia-smi", "exec sleep 999")
    found = examined(tmp_path, clean(PATH=f"{bin_folder}:{os.environ['PATH']}"), timeout=20.0)
    assert "probe-unfinished" in codes(found)
    assert found.facts.part(0, "machine")["cpus"] > 0


@pytest.mark.slow
def test_an_interpreter_without_torch_is_information(tmp_path: Path, bin_folder: Path):
    program(bin_folder, "python", f'exec {shell.quote([sys.executable])} -S -I "$@"')
    found = examined(tmp_path, clean(), python=str(bin_folder / "python"))
    assert "no-torch" in codes(found) and found.verdict != "broken"


def test_an_interpreter_that_does_not_run(tmp_path: Path):
    found = examined(tmp_path, clean(), python=str(tmp_path / "missing"))
    assert codes(found)[0] == "python-fails"
    assert found.verdict == "broken"


@pytest.mark.slow
def test_a_script_that_nobody_can_read(tmp_path: Path):
    assert "script-unreadable" in codes(examined(tmp_path, clean(), script=str(tmp_path / "train.py")))


@pytest.mark.slow
def test_with_tensors_two_ranks_of_this_machine(tmp_path: Path):
    found = examine(Wishes(tmp_path, nproc=2, compute_timeout=90), clean(OMP_NUM_THREADS="1"))
    assert found is not None
    ranks = found.facts.part(0, "compute")["ranks"]
    assert [one["stage"] for one in ranks] == ["end", "end"], ranks
    assert all(one["right"] and one["wrong"] == [] and one["flops"] > 0 for one in ranks)
    assert set(ranks[0]["bytes_per_second"]) == {"4096", "262144", "4194304"}


@pytest.mark.slow
def test_a_directory_that_cannot_be_written(tmp_path: Path):
    """As root permissions do not count: a file instead of a directory."""
    (tmp_path / "file").touch()
    found = examine(Wishes(tmp_path / "file", quick=True), clean())
    assert found is not None and codes(found)[0] == "directory-missing"


def test_a_task_takes_part_and_rank_0_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tasks = [
        clean(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
              MASTER_PORT="29411", OMP_NUM_THREADS="1", TMPDIR=str(tmp_path))
        for rank in range(2)
    ]  # fmt: skip
    folder = tmp_path / "shared"
    folder.mkdir()
    assert examine(Wishes(folder, quick=True), tasks[1]) is None
    found = examine(Wishes(folder, quick=True), tasks[0])
    assert found is not None
    assert [one["rank"] for one in found.facts.ranks] == [0, 1]
    assert "rank-missing" not in codes(found)
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_a_task_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = clean(RANK="0", WORLD_SIZE="3", LOCAL_RANK="0", LOCAL_WORLD_SIZE="3", MASTER_ADDR="127.0.0.1",
                MASTER_PORT="29411", TMPDIR=str(tmp_path))  # fmt: skip
    found = examine(Wishes(tmp_path, quick=True), env)
    assert found is not None
    (finding,) = [one for one in found.findings if one.code == "rank-missing"]
    assert "2 of 3 tasks did not take part (local ranks 1 and 2)" in finding.message


def test_ranks_on_nodes_that_nobody_can_start_agents_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = clean(
        RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="a", MASTER_PORT="29411"
    )
    with pytest.raises(RankupError, match="no job of SLURM or PBS names the 2 hosts"):
        examine(Wishes(tmp_path, quick=True), env)


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path):
    (tmp_path / "taken").symlink_to(tmp_path)
    with pytest.raises(RankupError, match="cannot leave its facts"):
        leave_facts(tmp_path / "taken", {"rank": 0, "pid": 1, "host": "here"})


# --- Agents that do not do as they should


def plan_of(hosts: int, tmp_path: Path, **more: Any) -> Plan:
    return Plan(hosts=("localhost",) * hosts, folder=str(tmp_path), **more)


@contextlib.contextmanager
def agents_of(scripts: list[str], plan: Plan) -> Iterator[list[Any]]:
    """One bash per node; AGENT in its text is the real one's command."""
    env = {**launch.environment(plan, clean(), nested=False), "AGENT": shell.quote(launch.agent_command())}
    with launch._ended() as processes:
        for text in scripts:
            processes.append(launch._start(["bash", "-c", text], env))
        yield processes


def facts_of(scripts: list[str], tmp_path: Path, timeout: float = 12.0, window: float = 8.0) -> Facts:
    plan = plan_of(len(scripts), tmp_path, window=window)
    (tmp_path / plan.mark).mkdir()
    (tmp_path / plan.mark / "head").touch()
    documents, said = gather(plan, lambda plan: agents_of(scripts, plan), timeout)
    return Facts.gathered(plan.hosts, documents, launch=said)


@pytest.mark.slow
def test_a_prologue_that_prints_between_the_lines(tmp_path: Path):
    noisy = "(while :; do printf 'Welcome to the cluster'; echo; printf '@rankup-doctor:zz'; done) & "
    facts = facts_of([noisy + "$AGENT 0; kill $!", "echo hello; $AGENT 1"], tmp_path)
    assert set(facts.nodes) == {0, 1}
    assert all("end" in parts and "network" in parts for parts in facts.nodes.values())


@pytest.mark.slow
def test_an_agent_that_prints_half_of_what_it_should(tmp_path: Path):
    facts = facts_of(["$AGENT 0", "$AGENT 1 | head -c 2500"], tmp_path, timeout=30)
    found = {finding.code: finding for finding in judge(facts)}
    assert "agent-lost" in found and 1 in facts.nodes


@pytest.mark.slow
def test_an_agent_that_never_starts_is_named_when_the_time_is_over(tmp_path: Path):
    began = time.monotonic()
    facts = facts_of(["$AGENT 0", "exec sleep 999"], tmp_path, timeout=7, window=5)
    assert facts.silent == {1}
    assert "agent-missing" in {finding.code for finding in judge(facts)}
    assert time.monotonic() - began < 240


@pytest.mark.slow
def test_an_agent_that_fails_explains_itself(tmp_path: Path):
    facts = facts_of(
        ["$AGENT 0", "echo 'bash: /env/bin/python: No such file or directory' >&2; exit 127"], tmp_path
    )
    (finding,) = [one for one in judge(facts) if one.code == "agent-missing"]
    assert "does not exist there" in finding.why


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_64_agents_on_this_machine_finish(tmp_path: Path):
    """Every pair of them, over real sockets: 4,032 connections."""
    facts = facts_of([f"$AGENT {node}" for node in range(64)], tmp_path, timeout=200, window=150)
    assert facts.silent == frozenset()
    assert all(parts["network"]["reached"] == 63 for parts in facts.nodes.values())
    assert all("end" in parts for parts in facts.nodes.values())
