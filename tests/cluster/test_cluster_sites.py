"""``rankup sites discover`` and ``check`` on a real SLURM: the profile that is written agrees with the cluster."""

from __future__ import annotations

import json
import sys

import pytest
from lab import HEAD, Lab

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_a_profile_that_was_discovered_agrees_and_a_changed_one_gets_a_patch(cluster: Lab):
    folder = cluster.shared / "sites"
    command = [sys.executable, "-m", "rankup", "sites"]
    done = cluster.run(HEAD, [*command, "discover", "lab", "--to", str(folder)], timeout=120)
    assert done.code == 0, done.out + done.err
    env = {"RANKUP_SITES": str(folder)}
    done = cluster.run(HEAD, [*command, "check", "lab"], env=env, timeout=120)
    assert done.code == 0 and "nothing differs from what this cluster says (sinfo on " in done.out, (
        done.out + done.err
    )
    text = (folder / "lab.toml").read_text()
    assert 'version = "' in text and "[queue_nodes]" in text
    (folder / "old.toml").write_text('extends = "lab"\n[node]\ngpus = 7\n[when.gpu]\nqueue = "gone"\n')
    done = cluster.run(HEAD, [*command, "check", "old", "--json"], env=env, timeout=120)
    said = json.loads(done.out)["here"]
    assert done.code == 1 and [one["place"] for one in said["differences"]] == ["node.gpus", "when.gpu.queue"]
    (folder / "new.toml").write_text(said["patch"])
    shown = json.loads(cluster.run(HEAD, [*command, "show", "new", "--json"], env=env, timeout=120).out)
    assert 0 < shown["node"]["gpus"] < 7
