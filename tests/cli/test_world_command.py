"""``rankup world``: the whole truth in one write, or one line of JSON, or one clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, without anything of a launcher around the tests."""
    base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, *args], env={**base, **env}, capture_output=True, text=True, timeout=240
    )


def world(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "rankup", "world", *args, **env)


def test_json_is_one_line_that_holds_everything():
    done = world("--json", **OPENMPI, OMP_NUM_THREADS="3", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    facts = json.loads(done.stdout)
    assert (facts["rank"], facts["world_size"], facts["local_rank"], facts["launcher"]) == (
        1,
        2,
        1,
        "openmpi",
    )
    assert facts["sources"]["rank"] == "OMPI_COMM_WORLD_RANK"
    assert facts["device"] == "cpu"
    assert facts["omp_num_threads"] == "3"
    assert facts["rendezvous"].startswith("127.0.0.1:")
    assert (facts["address"], facts["interface"], facts["problem"]) == ("127.0.0.1", "lo", None)


def test_text_says_where_each_value_came_from():
    lines = world(**OPENMPI).stdout.splitlines()
    assert lines[0].startswith("rank 1 of 2 on ")
    assert ["local_rank", "1", "OMPI_COMM_WORLD_LOCAL_RANK"] in [line.split() for line in lines]
    assert ["job_id", "-"] in [line.split() for line in lines]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_is_compact():
    cpus = sorted(os.sched_getaffinity(0))
    expected = str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}-{cpus[-1]}"
    if cpus != list(range(cpus[0], cpus[-1] + 1)):
        pytest.skip("this process is bound to CPUs with gaps")
    assert json.loads(world("--json").stdout)["cpu_affinity"] == expected


def test_a_contradiction_is_one_error_without_a_traceback():
    done = world(**OPENMPI, RANK="0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error: RANK is 0, but OMPI_COMM_WORLD_RANK is 1 [contradictory-environment]" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_that_would_not_meet_are_a_problem_to_show_and_not_an_error():
    spread = {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    done = world("--json", **spread)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["num_nodes"], facts["rendezvous"], facts["address"]) == (2, None, None)
    assert "MASTER_ADDR is not set" in facts["problem"]


def test_it_works_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from rankup.cli.app import main; main(['world', '--json'])"
    )
    done = python("-c", code)
    assert json.loads(done.stdout)["launcher"] == "none", done.stderr
