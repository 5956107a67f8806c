"""What single machines and their ranks may have, one thing broken at a time, and nothing else found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from clusters import Cluster, address, facts, failing, healthy

from rankup.doctor.verdict import judge
from rankup.findings.finding import Finding, Severity

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def machine(**values: Any) -> Callable[[Cluster], None]:
    return lambda cluster: cluster["nodes"][1]["machine"].update(values)


def eight_threads(cluster: Cluster) -> None:
    for one in cluster["ranks"]:
        one["omp_threads"] = "8"


def part(name: str, **values: Any) -> Callable[[Cluster], None]:
    return lambda cluster: cluster["nodes"][1][name].update(values)


def another_gpu(cluster: Cluster) -> None:
    for gpu in cluster["nodes"][1]["gpus"]["gpus"]:
        gpu["name"] = "NVIDIA A100"


def far_from_its_gpu(cluster: Cluster) -> None:
    """Rank 3 has the cores of NUMA node 1, and its GPU is at NUMA node 0."""
    for gpu in cluster["nodes"][1]["gpus"]["gpus"]:
        gpu["numa"] = 0
    for one in cluster["ranks"]:
        one["affinity"] = [4, 5] if one["rank"] == 3 else [0, 1, 2]


def no_gpus_asked_for(cluster: Cluster) -> None:
    for one in cluster["ranks"]:
        one["job"]["gpus"] = None
        one["visible"] = None


def gpus_that_no_driver_shows(cluster: Cluster) -> None:
    for one in cluster["ranks"]:
        one |= {"gpus": [], "device": None}
    for parts in cluster["nodes"].values():
        parts["gpus"] |= {"state": "none", "gpus": []}


def other_world(cluster: Cluster) -> None:
    cluster["ranks"][0]["world_size"] = 1


def a_name_of_another_network(cluster: Cluster) -> None:
    """The name of node2 leads to its slow network, on which nobody listens."""
    failing(cluster, 0, 1, "refused")
    cluster["nodes"][0]["network"]["failed"][0]["address"] = "192.168.0.2"


@pytest.mark.parametrize(
    ("broken", "code", "place", "severity", "word"),
    [
        (machine(open_files=[256, 4096]), "few-open-files", "node2", WARNING, "256 files"),
        (machine(infiniband=["mlx5_0"], locked_memory=[65536, 65536]), "locked-memory", "node2", WARNING, "0.1 MiB"),
        (machine(umask=0o002), "", "", NOTE, ""),
        (machine(umask=None), "", "", NOTE, ""),
        (machine(umask=0), "umask-open", "node2", NOTE, "everybody may write"),
        (machine(umask=0o020), "umask-open", "node2", NOTE, "everybody may write"),
        (part("gpus", xid=["NVRM: Xid 79"]), "gpu-xid", "node2", WARNING, "Xid 79"),
        (another_gpu, "gpus-differ", "node1 and node2", WARNING, "2 × NVIDIA A100 on node2"),
        (gpus_that_no_driver_shows, "gpus-not-visible", "node1 and node2", WARNING, "no driver shows them"),
        (no_gpus_asked_for, "gpus-not-requested", "node1 and node2", WARNING, "asked for none"),
        (eight_threads, "too-many-threads", "node1 and node2", WARNING, "16 OpenMP threads"),
        (far_from_its_gpu, "far-from-gpu", "node2", WARNING, "rank 3"),
        (part("shared", free=10 * 2**20), "little-room", "node2", WARNING, "10 MiB left"),
        (part("ports", port=80, taken="refused"), "port-refused", "node2", ERROR, "port 80"),
        (
            part("ports", open_to_all=[{"name": "python", "pid": 7, "port": 29500}]),
            "listens-to-all", "node2", NOTE, "python (pid 7)",
        ),
        (part("speed", probe_error="OSError: no"), "probe-failed", "node2", NOTE, "OSError: no"),
        (lambda cluster: cluster["here"].update(architecture="aarch64"), "login-architecture", "", WARNING, "aarch64"),
        (other_world, "world-sizes-differ", "", ERROR, "1, 4"),
        (a_name_of_another_network, "name-and-route-differ", "node2", WARNING, address(1)),
    ],
)  # fmt: skip
def test_one_thing_that_is_broken_is_the_only_finding(
    broken: Callable[[Cluster], None], code: str, place: str, severity: Severity, word: str
):
    cluster = healthy()
    broken(cluster)
    found = judge(facts(cluster))
    assert [one.code for one in found] == ([code] if code else [])
    for finding in found:
        assert isinstance(finding, Finding)
        assert (finding.place, finding.severity) == (place, severity)
        assert word in finding.message


def test_of_many_broken_links_some_are_named_and_the_rest_are_counted():
    cluster = healthy(40)
    for node in range(0, 40, 2):
        failing(cluster, node, node + 1)
        failing(cluster, node + 1, node)
    found = judge(facts(cluster))
    (rest,) = [one for one in found if one.code == "links-down"]
    assert "40 connections failed in all" in rest.message
    assert {one.code for one in found} == {"links-down", "link-down"}
