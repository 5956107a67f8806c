"""Nodes that have failed: the file of a team, the command, and what a submit makes of it."""

from __future__ import annotations

import json
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankup.cli.commands.sites import app
from rankup.errors import RankupError
from rankup.schedulers.base import scheduler_named
from rankup.sites import bad_nodes
from rankup.spec.jobspec import JobSpec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bad-nodes"


def hosts(path: Path) -> list[str]:
    return [node.host for node in bad_nodes.read(path)]


def test_a_node_is_bad_until_its_time_has_passed_and_its_newest_line_counts(path: Path):
    now = int(time.time())
    path.write_text(
        f"n1 {now - 1} ada old\nn2 {now + 100} ada first\nn2 {now + 200} bob second\nn3 {now + 100}\nbroken\n\n"
    )
    assert [(one.host, one.by, one.why) for one in bad_nodes.read(path)] == [
        ("n2", "bob", "second"),
        ("n3", "", ""),
    ]


def test_the_command_adds_lists_and_removes(path: Path):
    runner = CliRunner()
    added = runner.invoke(app, ["bad-nodes", str(path), "--add", "n1", "--add", "n2", "--why", "Xid 79"])
    assert added.exit_code == 0 and hosts(path) == ["n1", "n2"]
    path.chmod(0o664)
    removed = runner.invoke(app, ["bad-nodes", str(path), "--remove", "n1", "--json"])
    assert [(one["host"], one["why"]) for one in json.loads(removed.stdout)] == [("n2", "Xid 79")]
    assert path.stat().st_mode & 0o777 == 0o664  # the team may still write to it
    with pytest.raises(RankupError, match="not noted as bad: n9"):
        bad_nodes.remove(path, ["n9"])


def test_nodes_that_the_doctor_found_broken_are_noted(path: Path, tmp_path: Path):
    report = tmp_path / "doctor.json"
    findings = [
        {"severity": "error", "place": "n1 and n2", "code": "gpu-lost"},
        {"severity": "warning", "place": "n3", "code": "slow"},
        {"severity": "error", "place": "", "code": "no-torch"},
    ]
    report.write_text(json.dumps({"hosts": ["n1", "n2", "n3"], "findings": findings}))
    CliRunner().invoke(app, ["bad-nodes", str(path), "--doctor", str(report)])
    assert [(one.host, one.why) for one in bad_nodes.read(path)] == [
        ("n1", "rankup doctor: gpu-lost"),
        ("n2", "rankup doctor: gpu-lost"),
    ]


def test_sbatch_is_told_to_leave_them_out_and_qsub_has_no_such_option():
    spec = JobSpec(name="a", folder=Path("/"), command=("train.py",), directives=("--exclude=n7",))
    assert scheduler_named("slurm").exclude_options(["n1", "n2"], spec) == ["--exclude=n7,n1,n2"]
    assert scheduler_named("pbs").exclude_options(["n1", "n2"], spec) == []


def test_the_script_of_a_job_notes_nodes_and_reads_what_the_command_writes(path: Path):
    bad_nodes.add(path, ["n1"], "by hand")
    part = files("rankup.script").joinpath("parts/bad_nodes.sh").read_text()
    said = subprocess.run(
        ["bash", "-c", f"say() {{ echo \"$*\"; }}\n{part}\nHOSTS=(n1 n2 n3)\nnote_bad_nodes 'lost by PBS' n3 n4\n"
         "warn_of_bad_nodes\nlist_bad_nodes"],
        env={"BAD_NODES": str(path), "JOB": "17", "USER": "ada", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines()[-3:] == [
        f"warning: n1 is noted as a bad node in {path}",
        f"warning: n3 is noted as a bad node in {path}",
        "n1,n3,n4",
    ]
    n4 = bad_nodes.read(path)[-1]
    assert (n4.host, n4.by, n4.why) == ("n4", "ada", "lost by PBS, job 17")
    assert abs(n4.until - time.time() - bad_nodes.LASTS_S) < 60
