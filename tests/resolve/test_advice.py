"""What submit says before the queue: each finding where it belongs, and silence where it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from asking import ask
from rankup.findings.finding import Severity
from rankup.resolve.advice import advise
from rankup.resolve.program import architecture, imports_rankup

SHARED = Path("/shared")


def codes(folder: Path, **flags: object) -> dict[str, Severity]:
    """What is found about a job at a site, as if it ran on a shared file system."""
    resolved = ask(folder, **flags)
    moved = {"runs_root": SHARED / "runs"}
    if not flags.get("here"):
        moved["folder"] = SHARED
    return {finding.code: finding.severity for finding in advise(_with(resolved, **moved))}


def _with(resolved, **changes):
    return replace(resolved, spec=resolved.spec.model_copy(update=changes))


def old_python(folder, text, **flags):
    """Findings about a script with this text at a site with Python 3.8.10."""
    (folder / "train.py").write_text(text)
    resolved = ask(folder, site="sockeye", account="a", **flags)
    return [finding for finding in advise(resolved) if finding.code == "python-too-old"]


@pytest.mark.parametrize(
    "text", ["import rankup", "def f():\n  from rankup.core import x", "import os, rankup as r"]
)
def test_a_script_that_imports_rankup_does_not_run_on_an_old_python(tmp_path, text):
    [finding] = old_python(tmp_path, text)
    assert finding.severity is Severity.ERROR
    assert "3.8.10" in finding.message


@pytest.mark.parametrize(
    "text", ["import torch", "import rankup_tools", "from . import rankup", "no python ("]
)
def test_a_plain_script_runs_on_an_old_python(tmp_path, text):
    assert old_python(tmp_path, text) == []


@pytest.mark.parametrize(("version", "found"), [("3.8.10", 1), ("3.12.1", 0)])
def test_a_virtual_environments_own_python_is_what_counts(tmp_path, version, found):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    assert len(old_python(tmp_path, "import rankup", venv="env")) == found


@pytest.mark.parametrize(
    ("text", "gpus", "found"),
    [("import rankup", 12, True), ("import rankup", 0, False), ("import torch", 12, False)],
)
@pytest.mark.parametrize("site", ["aurora", "lab", "lumi"])
def test_a_script_that_imports_rankup_does_not_go_to_gpus_that_its_library_does_not_know(
    tmp_path, text, gpus, found, site
):
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "lab.toml").write_text('scheduler = "slurm"\n[node]\ndevice = "npu"\n')
    environ = {"RANKUP_SITES": str(tmp_path)}
    given = {"account": "a", "queue": "debug", "gpus_per_node": 8 if gpus and site == "lumi" else gpus}
    said = {one.code: one.severity for one in advise(ask(tmp_path, site=site, environ=environ, **given))}
    assert (said.get("device-without-rankup") is Severity.ERROR) == (found and site == "lab")


@pytest.mark.parametrize("other", [{"conda": "new"}, {"container": "/images/new.sif"}])
def test_another_environment_may_bring_another_python(tmp_path, other):
    assert old_python(tmp_path, "import rankup", **other) == []


@pytest.mark.parametrize(
    ("site", "given", "found"),
    [
        ("fir", {}, True),
        ("fir", {"modules": ("python/3.12", "cuda")}, True),
        ("sockeye", {}, True),
        ("fir", {"modules": ("PyTorch/2.8",)}, False),
        ("fir", {"venv": "$HOME/env"}, False),
        ("fir", {"conda": "env"}, False),
        ("fir", {"container": "$HOME/torch.sif"}, False),
        ("fir", {"python": "/opt/bin/python"}, False),
        ("fir", {"pre": (". env.sh",)}, False),
        ("cyclone", {}, False),
        ("roihu", {}, False),
        ("della", {}, False),
        ("slurm", {}, False),
        ("slurm", {"modules": ("python",)}, False),  # nothing is known of that cluster
    ],
)
def test_a_python_of_modules_without_torch_is_named(tmp_path, site, given, found):
    said = codes(tmp_path, site=site, account="a", gpus_per_node=1, **given)
    assert (said.get("python-without-torch") is Severity.NOTE) == found


def test_a_modules_source_is_looked_into_as_well(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "job.py").write_text("import rankup")
    (tmp_path / "pkg" / "__main__.py").write_text("import os")
    assert imports_rankup(("-m", "pkg.job"), tmp_path)
    assert not imports_rankup(("-m", "pkg"), tmp_path)
    assert imports_rankup(("-m", "rankup.train"), tmp_path)
    assert not imports_rankup(("-m", "elsewhere"), tmp_path)
    assert not imports_rankup(("echo",), tmp_path)


def elf(machine: int, order: str = "little") -> bytes:
    """The beginning of a program for a processor."""
    return (
        b"\x7fELF\x02" + (b"\x01" if order == "little" else b"\x02") + bytes(12) + machine.to_bytes(2, order)
    )


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (elf(0x3E), "x86_64"),
        (elf(0xB7), "aarch64"),
        (elf(0x15, "big"), "ppc64le"),
        (b"#!/bin/sh\n" * 9, ""),
        (b"", ""),
    ],
)
def test_a_programs_processor_is_read_from_its_header(tmp_path, content, name):
    (tmp_path / "python").write_bytes(content)
    assert architecture(tmp_path / "python") == name
    assert architecture(tmp_path / "nothing") == ""


@pytest.mark.parametrize(("machine", "found"), [(0x3E, True), (0xB7, False)])
def test_a_virtual_environment_of_the_login_node_does_not_run_on_other_processors(tmp_path, machine, found):
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "activate").touch()
    (tmp_path / "env" / "bin" / "python").write_bytes(elf(machine))
    said = codes(tmp_path, site="eap", venv="env", gpus_per_node=4)
    assert ("other-architecture" in said) == found
    assert "missing-venv" not in said


@pytest.mark.parametrize(
    ("text", "flags", "found"),
    [
        ("import rankup", {}, True),
        ("import torch", {}, False),
        ("import rankup", {"binds": ("/x/rankup:/opt/rankup/rankup",)}, False),
    ],
)
def test_a_container_that_may_lack_rankup_is_found_with_how_to_bind_it(tmp_path, text, flags, found):
    (tmp_path / "train.py").write_text(text)
    resolved = ask(tmp_path, site="olivia", account="a", **flags)
    findings = [finding for finding in advise(resolved) if finding.code == "container-without-rankup"]
    assert bool(findings) == found
    assert all(":/opt/rankup/rankup --env PYTHONPATH=/opt/rankup" in finding.fix for finding in findings)


@pytest.mark.parametrize(
    ("text", "flags", "found"),
    [
        ("import rankup", {"conda": "torch-env"}, True),
        ("import rankup", {"pixi": "workspace"}, True),
        ("import torch", {"conda": "torch-env"}, False),
        ("import rankup", {"conda": "torch-env", "env": {"PYTHONPATH": "/opt/rankup"}}, False),
    ],
)
def test_an_environment_that_must_contain_rankup_is_named(tmp_path, text, flags, found):
    (tmp_path / "train.py").write_text(text)
    said = {each.code for each in advise(ask(tmp_path, site="slurm", **flags))}
    assert ("environment-without-rankup" in said) == found


@pytest.mark.parametrize(("folder", "found"), [("/no such disk", False), ("/usr", True)])
def test_the_container_of_a_profile_is_looked_for_where_its_file_system_is(tmp_path, folder, found):
    job = ask(tmp_path, site="slurm")
    image = f"{folder}/images/torch.sif"
    of_site = _with(replace(job, origin=job.origin | {"container": "site slurm"}), container=image)
    of_user = _with(replace(job, origin=job.origin | {"container": "--container"}), container=image)
    assert ("missing-container" in {each.code for each in advise(of_site)}) == found
    assert "missing-container" in {each.code for each in advise(of_user)}


def test_an_environment_that_is_not_there_is_found(tmp_path):
    assert codes(tmp_path, venv="none")["missing-venv"] is Severity.ERROR
    assert codes(tmp_path, container="none.sif")["missing-container"] is Severity.ERROR
    assert not codes(tmp_path, container="docker://x/y").keys() & {"missing-container"}
    assert not codes(tmp_path, venv="$HOME/env").keys() & {"missing-venv"}


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({"nodes": 2, "gpus_per_node": 1}, True),
        ({"nodes": 2, "gpus_per_node": 2}, False),
        ({"nodes": 1, "gpus_per_node": 1}, False),
        ({"nodes": 2}, False),
    ],
)
def test_half_filled_nodes_are_found_where_the_site_minds(tmp_path, flags, found):
    assert ("half-filled-nodes" in codes(tmp_path, site="della", **flags)) == found


@pytest.mark.parametrize(
    ("flags", "found"), [({}, True), ({"time": "1h"}, False), ({"site": "local"}, False)]
)
def test_a_missing_time_is_noted(tmp_path, flags, found):
    assert ("no-time" in codes(tmp_path, **flags)) == found


def test_missing_cores_are_noted_at_every_site(tmp_path):
    sites = tmp_path / ".rankup" / "sites"
    sites.mkdir(parents=True)
    (sites / "big.toml").write_text('scheduler = "slurm"\n[node]\ngpus = 4\ncpus = 64\n')
    [finding] = [f for f in advise(ask(tmp_path, site="big", gpus_per_node=4)) if f.code == "few-cores"]
    assert finding.fix == "--cpus-per-task 16"
    assert "few-cores" not in codes(tmp_path, site="big", gpus_per_node=4, cpus_per_task=16)
    assert "few-cores" not in codes(tmp_path, site="big")
    # The profile does not say how many cores a node has.
    [finding] = [f for f in advise(ask(tmp_path, site="slurm", gpus_per_node=4)) if f.code == "few-cores"]
    assert finding.fix == "--cpus-per-task 8"


def test_paths_that_each_node_has_for_itself_are_found(tmp_path):
    resolved = ask(tmp_path)
    local = {"folder": Path("/tmp/x"), "runs_root": Path("/dev/shm/runs")}
    places = [f.place for f in advise(_with(resolved, **local)) if f.code == "node-local-path"]
    assert places == ["/tmp/x", "/dev/shm/runs"]
    local["runs_root"] = Path("/tmp/x/runs")
    places = [f.place for f in advise(_with(resolved, **local)) if f.code == "node-local-path"]
    assert places == ["/tmp/x"]  # one cause, one warning
    assert "node-local-path" not in codes(tmp_path)
    here = ask(tmp_path, site="local")
    assert "node-local-path" not in [f.code for f in advise(_with(here, **local))]


def test_a_type_of_gpus_without_gpus_is_no_silent_job_without_gpus(tmp_path):
    assert codes(tmp_path, site="slurm", gpu_type="a100")["gpu-type-without-gpus"] is Severity.WARNING
    assert "gpu-type-without-gpus" not in codes(tmp_path, site="slurm", gpu_type="a100", gpus_per_node=1)
    (tmp_path / "lab.toml").write_text('scheduler = "slurm"\n[defaults]\ngpu_type = "a100"\n')
    lab = {"site": "lab", "environ": {"RANKUP_SITES": str(tmp_path)}}
    assert "gpu-type-without-gpus" not in codes(tmp_path, **lab)


def test_a_path_that_no_file_system_takes_is_missing(tmp_path):
    assert codes(tmp_path, site="slurm", venv="x" * 5000)["missing-venv"] is Severity.ERROR


@pytest.mark.parametrize(
    ("site", "today", "said"),
    [
        ("roihu", date(2027, 8, 20), {"untried-profile"}),
        ("roihu", date(2027, 8, 22), {"untried-profile", "old-profile"}),  # read on 2026-08-21
        ("lumi", date(2025, 10, 16), {"untried-profile", "old-profile"}),  # its oldest page counts
        ("cyclone", date(2024, 2, 29), {"old-profile"}),
        ("cyclone@2023", date(2027, 1, 1), set()),  # chosen for its year
        ("olivia@eessi", date(2027, 7, 3), {"untried-profile", "old-profile"}),  # chosen for its software
        ("slurm", date(2027, 1, 1), set()),
    ],
)
def test_a_profile_says_that_it_is_old_or_untried(tmp_path, monkeypatch, site, today, said):
    class Today(date):
        @classmethod
        def today(cls):
            return today

    monkeypatch.setattr("rankup.resolve.advice.date", Today)
    found = codes(tmp_path, site=site, account="a", gpus_per_node=4)
    assert {code for code in found if code.endswith("-profile")} == said


def test_only_a_container_that_is_a_path_can_be_missing(tmp_path):
    assert "missing-container" in codes(tmp_path, container="a.sif")
    assert "missing-container" in codes(tmp_path, container="./a.sqsh", container_runtime="pyxis")
    assert "missing-container" not in codes(tmp_path, container="nvcr.io#a/b:1", container_runtime="pyxis")
    assert "missing-container" not in codes(tmp_path, site="clariden", gpus_per_node=4, container="my-env")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (("train.py", "--seed", "$RANKUP_TASK"), True),
        (("train.py", "--price", "5$", "--regex", "a$"), False),
        (("/bin/bash", "-c", 'python a.py "$RANKUP_TASK"'), False),
    ],
)
def test_a_variable_in_an_argument_of_the_script_is_named(tmp_path, command, found):
    assert ("literal-variable" in {each.code for each in advise(ask(tmp_path, *command))}) is found
