"""A rehearsal changes nothing, ends in time, and leaves nothing behind, whatever stands in the script."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rankup.errors import RankupError
from rankup.rehearse import sandbox
from rankup.rehearse.mounts import leads_to
from rehearse.scripts import codes, rehearsed

pytestmark = pytest.mark.skipif(bool(sandbox.available()), reason="no user namespaces here")


@pytest.fixture
def leftovers(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[str]]:
    """Folders and processes that the rehearsals of this test have left."""
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def found() -> list[str]:
        processes = [
            " ".join(one.info["cmdline"] or ())[:120]
            for one in psutil.process_iter(["cmdline"])
            if any(str(scratch) in word for word in one.info["cmdline"] or ())
        ]
        return [*map(str, scratch.iterdir()), *processes]

    return found


@pytest.mark.repeated
@pytest.mark.parametrize("overlay", [True, False], ids=["copy-on-write", "read-only"])
def test_a_script_that_writes_and_removes_changes_nothing(tmp_path: Path, overlay: bool):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("precious")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    body = (
        f"rm -rf {outside}/data notes; echo new > made; echo x > {outside}/made; mkdir -p {outside}/a/b\n"
        f"rm -rf /usr/share; touch /etc/rankup-was-here; ls made notes 2>&1; python train.py"
    )
    report = rehearsed(folder, body, ("--nodes=1",), overlay=overlay)
    assert (outside / "data").read_text() == "precious" and (folder / "notes").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["job.sh", "notes", "train.py"]
    assert [path.name for path in outside.iterdir()] == ["data"]
    assert not Path("/etc/rankup-was-here").exists()
    assert len(report.launches[0].processes) == 1
    if overlay:
        assert (
            f"{outside}/made" in report.rehearsal.changed
            and "/etc/rankup-was-here" in report.rehearsal.changed
        )


def test_each_node_has_its_own_tmp_which_stays_from_step_to_step(tmp_path: Path):
    body = (
        "touch /tmp/of-the-first; srun bash -c 'touch /tmp/own-$(hostname); touch all-$SLURM_NODEID'\n"
        "srun bash -c 'cd /tmp; echo $(hostname): $(ls -d own-* of-the-first 2>/dev/null)'; ls all-*; python train.py"
    )
    report = rehearsed(tmp_path, body, ("--nodes=2", "--ntasks-per-node=1"))
    said = report.rehearsal.output.splitlines()
    assert {"node1: of-the-first own-node1", "node2: own-node2", "all-0", "all-1"} <= set(said)


def test_an_environment_in_tmp_is_on_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as environment:
        command = Path(environment, "bin", "torchrun")
        command.parent.mkdir()
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")  # a stand-in lies over it
        report = rehearsed(
            tmp_path, f"srun ls {command}; python train.py", ("--nodes=2", "--ntasks-per-node=1")
        )
        assert report.rehearsal.output.splitlines().count(str(command)) == 2


def test_what_pythons_import_writes_is_no_change_of_the_script(tmp_path: Path):
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").touch()
    body = "python -c 'import package'; mkdir -p new/__pycache__; touch new/__pycache__/a.pyc made; python train.py"
    report = rehearsed(folder, body, ("--nodes=1",))
    if report.rehearsal.overlaid:
        assert report.rehearsal.changed == [f"{folder}/made"]


def test_a_script_that_hangs_ends_at_the_time_limit(tmp_path: Path, leftovers: Callable[[], list[str]]):
    report = rehearsed(tmp_path, "echo waiting; sleep infinity", ("--nodes=1",), seconds=2)
    assert report.rehearsal.ended_by == "timeout"
    assert codes(report) == {"would-hang"}
    assert leftovers() == []


def test_processes_that_try_to_stay_are_ended(tmp_path: Path, leftovers: Callable[[], list[str]]):
    seconds = f"1000.{os.getpid()}"  # so that nobody else's are found
    body = f"trap '' TERM INT HUP; setsid nohup sleep {seconds}1 & (setsid sleep {seconds}2 &) ; disown -a; "
    body += "python train.py"
    report = rehearsed(tmp_path, body, ("--nodes=1",))
    assert report.rehearsal.code == 0
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if p.info["cmdline"] in (["sleep", f"{seconds}1"], ["sleep", f"{seconds}2"])
    ]
    assert leftovers() == []


def test_a_fork_bomb_ends(
    tmp_path: Path, leftovers: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rankup.rehearse.rehearse.MOST_PROCESSES", 60)  # the other tests go on beside it
    report = rehearsed(tmp_path, "f() { f | f & }; f; while :; do :; done", ("--nodes=1",), seconds=20)
    assert "too-many-processes" in codes(report) or "would-hang" in codes(report)
    assert leftovers() == []


def test_no_connection_leaves_the_sandbox(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo reached; curl http://127.0.0.1:{port}\n"
        body += "wget example.org; pip install x"
        report = rehearsed(tmp_path, body, ("--nodes=1",))
    assert "reached" not in report.rehearsal.output
    assert {line.split()[0] for line in report.not_done()} == {"curl", "wget", "pip"}


def test_a_job_that_is_rehearsed_inside_of_a_job_sees_none_of_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(os.environ, "SLURM_NTASKS", "77")
    report = rehearsed(tmp_path, "echo tasks ${SLURM_NTASKS:-none}", ("--nodes=1",))
    assert "tasks none" in report.rehearsal.output


@pytest.mark.slow
def test_without_a_sandbox_only_a_copy_of_the_folder_changes(
    tmp_path: Path, leftovers: Callable[[], list[str]]
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("precious")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    body = f"rm -f notes {outside}/data; rm -f notes; ls; (setsid sleep 1002 &); srun -n2 python train.py"
    report = rehearsed(folder, body, ("--nodes=1", "--ntasks=2"), confined=False)
    assert (outside / "data").exists() and (folder / "notes").exists()
    assert len(report.launches[0].processes) == 2
    assert "outside" in codes(report) and "notes" not in report.rehearsal.output
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1002"]]
    assert leftovers() == []


TRAINS = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
os.write(1, f"sum {int(total)} of {dist.get_world_size()} {os.uname().nodename}\\n".encode())  # one write
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "each"),  # every process imports torch, which takes two seconds of a core
    [
        ("srun bash -c 'export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS; exec python train.py'", 1),
        pytest.param(
            "srun bash -c 'exec python -m torch.distributed.run --nnodes=2 --nproc_per_node=1 "
            "--node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'",
            1,
            marks=pytest.mark.campaign,
        ),
    ],
    ids=["srun", "torchrun"],
)
def test_for_real_the_ranks_meet_over_gloo_on_pretended_nodes(tmp_path: Path, start: str, each: int):
    body = f"export MASTER_ADDR=$(scontrol show hostnames | head -n1) MASTER_PORT=29513\n{start}"
    nodes = ("--nodes=2", f"--ntasks-per-node={each}")
    report = rehearsed(tmp_path, body, nodes, program=TRAINS, for_real=True, seconds=150)
    lines = sorted(line for line in report.rehearsal.output.splitlines() if line.startswith("sum"))
    total = sum(range(2 * each))
    assert lines == [f"sum {total} of {2 * each} node{n}" for n in (1, 2) for _ in range(each)], (
        report.rehearsal.output
    )
    assert len(report.launches[0].processes) == 2 * each and report.rehearsal.code == 0


def test_without_namespaces_a_rehearsal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "available", lambda: "user namespaces: Operation not permitted")
    with pytest.raises(RankupError, match="does not let a user make a sandbox") as error:
        rehearsed(tmp_path, "echo started", ("--nodes=1",))
    assert "--unconfined" in error.value.hint


def test_of_a_folder_with_too_many_entries_those_on_the_way_to_mounts_are_kept():
    wanted = ["/", "/home/alice", "/home/bob/data"]
    kept = [
        name for name in ("/home/alice", "/home/bob", "/home/bo", "/home/carol") if leads_to(name, wanted)
    ]
    assert kept == ["/home/alice", "/home/bob"]
