"""Where an environment is built: here, or in a job where the compute nodes have another architecture."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from rankup.batch.env_create import as_job, build_here, modules_of, needs_job, read_facts, script_path
from rankup.errors import RankupError
from rankup.script.env_build import Environment
from rankup.sites.lookup import BUILT_IN, find_site
from rankup.sites.site import Node, Site

OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"

ENV = {"PATH": "/usr/bin:/bin"}


def environment(folder: Path, **asked) -> Environment:
    return Environment(**{"folder": folder, "name": "e", **asked})


@pytest.mark.parametrize(
    ("arch", "machine", "needed"),
    [
        ("aarch64", "x86_64", True),
        ("aarch64", "aarch64", False),  # on a compute node: in an interactive job
        ("x86_64", "x86_64", False),
        ("", "x86_64", False),  # a site that does not say
    ],
)
def test_a_job_is_needed_where_compute_nodes_are_of_another_architecture(arch, machine, needed):
    site = Site(name="s", scheduler="slurm", node=Node(arch=arch))
    assert needs_job(site, machine) == needed


def test_the_modules_are_those_of_the_sites_jobs():
    site = Site(
        name="s",
        scheduler="slurm",
        defaults={"modules": ["python/3.11"]},
        when={"gpu": {"modules": ["python/3.11", "cuda/12.6"]}},
    )
    assert modules_of(site, gpu=True) == ("python/3.11", "cuda/12.6")
    assert modules_of(site, gpu=False) == ("python/3.11",)
    assert modules_of(Site(name="s", scheduler="slurm"), gpu=True) == ()


@pytest.mark.parametrize("name", sorted(path.stem for path in BUILT_IN.glob("*.toml")))
def test_every_built_in_site_has_modules_or_none(name, tmp_path):
    site = find_site(name, {}, tmp_path)
    assert all(module for module in modules_of(site, gpu=True))


def test_the_job_is_one_plain_process_on_a_node_with_a_gpu(tmp_path):
    resolved = as_job(environment(tmp_path), "eap", {"time": "20m"}, ENV, tmp_path)
    spec = resolved.spec
    assert (
        spec.command == ("bash", str(tmp_path / "e.sh")) == ("bash", str(script_path(environment(tmp_path))))
    )
    assert (spec.nodes, spec.nproc_per_node, spec.gpus_per_node, spec.launcher) == (1, 1, 1, "single")
    assert (spec.time, spec.queue, spec.max_requeues) == (20 * 60, "blanca", 0)
    assert spec.modules == ()  # the script loads them


def test_the_job_has_no_gpu_where_none_is_wanted(tmp_path):
    assert as_job(environment(tmp_path, cuda="cpu"), "eap", {}, ENV, tmp_path).spec.gpus_per_node == 0


def test_the_job_runs_outside_the_sites_container(tmp_path):
    spec = as_job(environment(tmp_path), "olivia", {"account": "nn1"}, ENV, tmp_path).spec
    assert (spec.container, spec.account) == ("", "nn1")


def test_an_account_that_the_site_wants_is_asked_for(tmp_path):
    with pytest.raises(RankupError) as raised:
        as_job(environment(tmp_path), "olivia", {}, ENV, tmp_path)
    assert raised.value.code == "missing-account"


def test_without_a_scheduler_another_architecture_is_one_error(tmp_path):
    sites = tmp_path / ".rankup" / "sites"
    sites.mkdir(parents=True)
    (sites / "lonely.toml").write_text(f'scheduler = "local"\n[node]\narch = "{OTHER}"\ngpus = 1\n')
    with pytest.raises(RankupError) as raised:
        as_job(environment(tmp_path), "lonely", {}, ENV, tmp_path)
    assert raised.value.code == "other-architecture"


def test_a_signal_ends_the_building_with_all_that_it_started_and_leaves_nothing(tmp_path):
    slow = tmp_path / "slow-python"
    slow.write_text('#!/bin/bash\nmkdir -p "${@: -1}"; touch "${@: -1}/half"; sleep 600\n')
    slow.chmod(0o755)
    half = tmp_path / "envs" / f"e-{platform.machine()}" / "half"

    def interrupt() -> None:
        deadline = time.monotonic() + 240
        while not half.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    code = build_here(environment(tmp_path / "envs", python=str(slow)), sys.stderr)
    other.join()
    assert code == 130
    assert list((tmp_path / "envs").iterdir()) == []


def test_facts_that_a_network_file_system_does_not_show_yet_are_the_path_alone(tmp_path):
    assert read_facts(tmp_path) == {"path": str(tmp_path)}
