"""doctor and top in jobs of a real PBS: all nodes answer, each is sampled, and no sampler is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pbs_jobs import rankup, submit
from pbs_lab import HEAD, PbsLab

from rankup.core.records import read_records

pytestmark = [pytest.mark.pbs, pytest.mark.timeout(600)]

WAITS = "import time\nprint('rank waits', flush=True)\ntime.sleep(600)\n"


def nodes_of(pbs: PbsLab, job: str) -> list[str]:
    return sorted({part.partition("/")[0] for part in pbs.qstat(job)["exec_host"].split("+")})


def samplers(pbs: PbsLab, run: str) -> list[str]:
    """The command lines of the samplers of ``run`` that live, on all nodes."""
    lines = [line for node in pbs.nodes for line in pbs.ask(node, ["ps", "-eo", "args"]).out.splitlines()]
    return [line for line in lines if run in line and ("rankup.monitor" in line or "sampler.sh" in line)]


@pytest.mark.parametrize("how", ["qdel", pytest.param("SIGKILL", marks=pytest.mark.campaign)])
def test_each_node_of_a_job_is_sampled_and_no_sampler_is_left(pbs: PbsLab, how: str):
    pbs.write("waits.py", WAITS)
    answer = submit(
        pbs, "--name", "sampled", "--nodes", "2", "--nproc-per-node", "2", "--max-requeues", "0", "waits.py"
    )
    folder = Path(answer["run"]) / "records"
    pbs.until(
        lambda: len([1 for path in folder.glob("utilization-*") if len(read_records(path)) >= 2]) == 2, 150
    )
    done = rankup(pbs, "top", "--once", "--json", answer["run"])
    assert done.code == 0, done.out + done.err
    seen = json.loads(done.out)
    assert [node["host"] for node in seen["nodes"]] == nodes_of(pbs, answer["job"]) and seen[
        "state"
    ] == "running"
    assert len(samplers(pbs, answer["run"])) == 2
    command = ["qdel", answer["job"]] if how == "qdel" else ["qsig", "-s", "SIGKILL", answer["job"]]
    assert pbs.ask(HEAD, command).code == 0
    pbs.until(lambda: not samplers(pbs, answer["run"]), 120)


def test_doctor_in_a_job_examines_its_nodes(pbs: PbsLab):
    """The agents are started by PBS itself; the facts come back on their output."""
    command = f"{sys.executable} -m rankup doctor --quick --json --timeout 60"
    text = f"#!/bin/bash\ncd {pbs.alice}\n{command} >doctor.json 2>doctor.err\n"
    done = pbs.ask(HEAD, ["qsub", "-l", "select=2:ncpus=2", "-l", "place=scatter"], text=text)
    assert done.code == 0, done.err
    job = done.out.strip()
    pbs.until(lambda: pbs.qstat(job)["job_state"] == "F", 150)
    said = (pbs.alice / "doctor.json").read_text()
    assert said, (pbs.alice / "doctor.err").read_text()
    found = json.loads(said)
    assert sorted(found["hosts"]) == nodes_of(pbs, job)
    assert found["verdict"] != "broken", found["findings"]
    assert found["here"]["scheduler"] == "qsub"  # whatever else is installed
    assert {str(node) for node in range(2)} == found["nodes"].keys()
