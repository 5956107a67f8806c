"""``rankup env create`` where the compute nodes are of another architecture than the login node: in a real job."""

from __future__ import annotations

import json
import platform
import sys

import pytest
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_the_environment_is_built_on_a_compute_node_and_the_job_followed(cluster: Lab):
    sites = cluster.shared / "env-create" / "sites"
    sites.mkdir(parents=True)
    (sites / "far.toml").write_text('scheduler = "slurm"\n[node]\narch = "another"\n')
    command = [sys.executable, "-m", "rankup", "env", "create", "--site", "far", "--path", "env-create/envs"]
    command += ["--torch", "none", "--cuda", "cpu", "--python", sys.executable]
    done = cluster.run(HEAD, command, env={"RANKUP_SITES": str(sites)}, timeout=120)
    assert done.code == 0, done.out + done.err
    path = cluster.shared / "env-create" / "envs" / f"far-{platform.machine()}"
    facts = json.loads((path / "environment.json").read_text())
    assert (facts["host"], facts["torch"]) == ("node1", None)
    assert f"built {path}" in done.out
