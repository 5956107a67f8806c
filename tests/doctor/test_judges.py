"""Each fault, planted in the facts of a healthy cluster, is named by its host; nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import Cluster, address, facts, failing, five_faults, gpu, healthy, silent

from rankup.doctor.verdict import Examination, judge
from rankup.findings.finding import Severity


def codes(cluster: Cluster) -> list[str]:
    return [finding.code for finding in judge(facts(cluster))]


def only(cluster: Cluster) -> Any:
    """The one finding."""
    found = judge(facts(cluster))
    assert len(found) == 1, [finding.as_dict() for finding in found]
    return found[0]


# --- Healthy machines of many kinds


def laptop() -> Cluster:
    """No network, no GPU, no scheduler; the own name is a loopback address."""
    cluster = healthy(1, 1, gpus=False)
    names = cluster["nodes"][0]["names"]
    names |= {"own": ["127.0.1.1"], "routes": [], "interfaces": {"lo": names["interfaces"]["lo"]}}
    cluster["nodes"][0]["network"] = {"alone": True}
    cluster["ranks"][0] |= {"launcher": "rankup", "job": {"scheduler": ""}, "omp_threads": None}
    cluster["counts"] = ()
    return cluster


def one_core_container() -> Cluster:
    cluster = laptop()
    cluster["nodes"][0]["machine"] |= {"cpus": 1, "container": "docker"}
    ranks = [
        {**cluster["ranks"][0], "rank": i, "local_rank": i, "affinity": [0], "world_size": 2}
        for i in range(2)
    ]
    return {**cluster, "ranks": ranks}


def ipv6_only() -> Cluster:
    cluster = healthy()
    for node, parts in cluster["nodes"].items():
        own = f"fd00::{node + 1}"
        parts["names"] |= {"own": [own], "routes": [own]}
        parts["names"]["interfaces"]["eth0"]["addresses"] = [own]
        parts["network"]["addresses"] = [own]
    return cluster


def mac() -> Cluster:
    cluster = laptop()
    cluster["nodes"][0]["machine"] |= {"system": "Darwin", "shm": None, "numa": {}, "umask": None}
    return cluster


def several_addresses() -> Cluster:
    cluster = healthy()
    for node, parts in cluster["nodes"].items():
        parts["names"]["own"] = [address(node), f"192.168.0.{node + 1}"]
    return cluster


def by_agents() -> Cluster:
    """Started by rankup: all ranks of a node see all of its GPUs and cores."""
    cluster = healthy(4, 4)
    for one in cluster["ranks"]:
        one |= {"launcher": "rankup", "affinity": list(range(8))}
    return cluster


@pytest.mark.parametrize(
    "cluster",
    [healthy(), healthy(gpus=False), healthy(1, 1), healthy(16, 8), laptop(), one_core_container(), ipv6_only(), mac(),
     several_addresses(), by_agents()],
    ids=["two-nodes", "no-gpus", "one", "big", "laptop", "one-core", "ipv6", "mac", "addresses", "agents"],
)  # fmt: skip
def test_a_healthy_cluster_has_no_finding(cluster: Cluster):
    assert codes(cluster) == []


def test_64_mb_of_shared_memory_is_a_warning():
    cluster = laptop()
    cluster["nodes"][0]["machine"]["shm"] = {"bytes": 64 * 2**20, "free": 64 * 2**20}
    finding = only(cluster)
    assert (finding.code, finding.severity) == ("little-shared-memory", Severity.WARNING)
    assert Examination(facts(cluster), [finding], 1.0).verdict == "doubtful"


# --- Who is missing


def test_a_missing_agent_is_told_from_a_dead_host():
    finding = only(silent(healthy(3), 1, "refused"))
    assert (finding.code, finding.place) == ("agent-missing", "node2")
    finding = only(silent(healthy(3), 1, "unreachable"))
    assert (finding.code, finding.place) == ("host-unreachable", "node2")


def test_an_unshared_directory_is_told_from_a_missing_agent_when_both_are_there():
    cluster = silent(healthy(3), 2, "refused")
    cluster["nodes"][1]["shared"] |= {"saw_mark": False, "inode": 5, "kind": "tmpfs", "source": "tmp"}
    cluster["nodes"][0]["shared"]["unseen"] = [1, 2]
    found = {finding.code: finding.place for finding in judge(facts(cluster))}
    assert found == {"agent-missing": "node3", "directory-not-shared": "node2"}


def test_a_slow_directory_is_neither_unshared_nor_a_missing_agent():
    cluster = silent(healthy(3), 2, "refused")
    cluster["nodes"][1]["shared"]["saw_mark"] = False  # the same inode of the same server, over NFS
    cluster["nodes"][0]["shared"]["unseen"] = [1, 2]
    found = {finding.code: (finding.place, finding.severity) for finding in judge(facts(cluster))}
    assert found == {
        "agent-missing": ("node3", Severity.ERROR),
        "directory-slow": ("node2", Severity.NOTE),
    }


def test_what_the_launcher_printed_explains_why_an_agent_is_missing():
    cluster = silent(healthy(), 1, "refused")
    cluster["launch"]["noise"] = ["slurmstepd: error: execve(): /env/bin/python: Exec format error"]
    finding = only(cluster)
    assert "another architecture" in finding.why and "rankup env create" in finding.fix


def test_nobody_answers():
    cluster = healthy()
    cluster |= {"nodes": {}, "ranks": []}
    assert only(cluster).code == "no-agents"


def test_an_agent_that_stops_in_the_middle():
    cluster = healthy()
    del cluster["nodes"][1]["end"]
    finding = only(cluster)
    assert (finding.code, finding.place) == ("agent-lost", "node2")


def test_a_probe_that_hangs_is_named():
    cluster = healthy()
    cluster["nodes"][1]["end"]["unfinished"] = ["shared"]
    del cluster["nodes"][1]["shared"]
    finding = only(cluster)
    assert (finding.code, finding.place) == ("probe-unfinished", "node2")
    assert "file system hangs" in finding.fix


def test_a_task_that_did_not_take_part():
    cluster = healthy()
    del cluster["ranks"][3]
    finding = only(cluster)
    assert (finding.code, finding.place) == ("rank-missing", "node2")


def test_two_ranks_with_one_number():
    cluster = healthy()
    cluster["ranks"][3]["rank"] = 1
    finding = only(cluster)
    assert finding.code == "rank-doubled" and "node1 and node2" in finding.message


def test_tasks_that_each_believe_to_be_alone():
    cluster = healthy(2, 1)
    for one in cluster["ranks"]:
        one |= {"world_size": 1, "rank": 0, "pmi": ["PMIX_RANK"]}
    assert "mpi-singletons" in codes(cluster)


# --- Names, interfaces, network


def test_a_name_that_is_a_loopback_address_is_not_reported_as_unreachable_too():
    cluster = healthy()
    cluster["nodes"][1]["names"]["loopback"] = ["node1"]
    failing(cluster, 1, 0, "refused")
    finding = only(cluster)
    assert finding.code == "name-is-loopback"
    assert finding.place == "node2" and "/etc/hosts" in finding.fix


def test_an_unknown_name():
    cluster = healthy()
    cluster["nodes"][1]["names"]["unresolved"] = ["node1"]
    failing(cluster, 1, 0, "unknown-name")
    finding = only(cluster)
    assert (finding.code, finding.place) == ("name-unknown", "node2")


def test_the_own_name_as_loopback_matters_to_gloo_alone():
    cluster = healthy()
    cluster["nodes"][1]["names"]["own"] = ["127.0.1.1"]
    finding = only(cluster)
    assert (finding.code, finding.severity) == ("own-name-is-loopback", Severity.WARNING)
    assert "GLOO_SOCKET_IFNAME=eth0" in finding.fix
    for parts in cluster["nodes"].values():
        parts["software"]["variables"] = {"GLOO_SOCKET_IFNAME": "eth0"}
    assert codes(cluster) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("GLOO_SOCKET_IFNAME", "eth7", "does not exist"),
        ("GLOO_SOCKET_IFNAME", "^lo", "does not exist"),
        ("GLOO_SOCKET_IFNAME", "eth", "does not exist"),
        ("GLOO_SOCKET_IFNAME", "lo", "loopback"),
        ("GLOO_SOCKET_IFNAME", "ib0", "is down"),
        ("NCCL_SOCKET_IFNAME", "hsn", "does not exist"),
        ("NCCL_SOCKET_IFNAME", "=eth", "does not exist"),
    ],
)
def test_a_wrong_interface(name: str, value: str, words: str):
    cluster = healthy()
    for parts in cluster["nodes"].values():
        parts["software"]["variables"] = {name: value}
    finding = only(cluster)
    assert finding.code == "wrong-interface" and words in finding.message
    assert finding.fix == f"export {name}=eth0"


@pytest.mark.parametrize(
    ("name", "value"),
    [("GLOO_SOCKET_IFNAME", "eth0"), ("NCCL_SOCKET_IFNAME", "eth"), ("NCCL_SOCKET_IFNAME", "^lo,docker"),
     ("NCCL_SOCKET_IFNAME", "=eth0")],
)  # fmt: skip
def test_a_right_interface(name: str, value: str):
    cluster = healthy()
    for parts in cluster["nodes"].values():
        parts["software"]["variables"] = {name: value}
    assert codes(cluster) == []


def test_a_port_that_is_blocked_in_one_direction():
    cluster = healthy()
    failing(cluster, 0, 1)
    finding = only(cluster)
    assert (finding.code, finding.place) == ("port-blocked", "node2")
    assert "node1 cannot connect to node2" in finding.message


def test_one_node_without_links_is_the_culprit_not_its_peers():
    cluster = healthy(5)
    for peer in (0, 1, 2, 4):
        failing(cluster, 3, peer)
        failing(cluster, peer, 3)
    finding = only(cluster)
    assert (finding.code, finding.place) == ("link-down", "node4")


def test_of_two_nodes_without_a_link_both_are_named():
    cluster = healthy()
    failing(cluster, 0, 1)
    failing(cluster, 1, 0)
    assert only(cluster).place == "node1 and node2"


def test_a_node_without_a_route():
    cluster = healthy()
    cluster["nodes"][1]["network"] |= {"listening": False, "addresses": [], "problem": ""}
    failing(cluster, 0, 1)
    failing(cluster, 1, 0, "unreachable")
    finding = next(one for one in judge(facts(cluster)) if one.code == "cannot-listen")
    assert finding.place == "node2" and "no route" in finding.message


def test_a_port_that_is_taken():
    cluster = healthy()
    cluster["nodes"][0]["ports"] |= {"port": 29500, "taken": "in-use", "holder": "python (pid 7)"}
    finding = only(cluster)
    assert (finding.code, finding.place) == ("port-taken", "node1")
    assert "python (pid 7)" in finding.message


# --- Ranks, GPUs, cores


def test_two_ranks_on_one_device():
    cluster = healthy()
    for one in cluster["ranks"][2:]:
        one |= {"gpus": [gpu(1, 0)], "device": gpu(1, 0), "visible": "0"}
    cluster["ranks"][3]["gpus"] = cluster["ranks"][2]["gpus"] = [gpu(1, 0), gpu(1, 1)]
    finding = only(cluster)
    assert (finding.code, finding.place) == ("gpu-shared", "node2")
    assert "ranks 2 and 3" in finding.message


def test_more_ranks_than_gpus_on_all_nodes_is_one_finding():
    cluster = healthy(8, 4)
    for one in cluster["ranks"]:
        one["gpus"] = one["gpus"][:2]
        one["job"] = {**one["job"], "gpus": "2"}
        one["device"] = one["gpus"][one["local_rank"] % 2]
    finding = only(cluster)
    assert finding.code == "more-ranks-than-gpus"
    assert "8 hosts (node[1-8])" in finding.message and "--ntasks-per-node=2" in finding.fix


def test_gpus_without_a_rank():
    cluster = healthy(2, 2)
    cluster["ranks"] = [{**one, "local_world_size": 1} for one in cluster["ranks"] if one["local_rank"] == 0]
    cluster["counts"] = (1, 1)
    assert only(cluster).code == "gpus-unused"


def test_a_gpu_for_each_task_is_information():
    cluster = healthy()
    for one in cluster["ranks"]:
        one["gpus"] = [one["device"]]
    assert only(cluster).severity is Severity.NOTE


def test_ranks_that_are_bound_to_one_core():
    cluster = healthy(2, 4)
    for one in cluster["ranks"]:
        one["affinity"] = [3]
    finding = only(cluster)
    assert finding.code == "ranks-share-cores"
    assert "node1 and node2: 4 ranks share core 3 of 8" in finding.message


def test_cores_that_srun_forgot():
    cluster = healthy()
    for one in cluster["ranks"]:
        one |= {"affinity": [one["local_rank"]], "cpus_per_task": "4"}
    assert only(cluster).code == "cpus-per-task-lost"


def test_a_driver_that_fails_half_way():
    cluster = healthy()
    gpus = cluster["nodes"][1]["gpus"]
    gpus |= {"state": "failed", "error": "Unable to determine the device handle for GPU1: GPU is lost"}
    gpus["gpus"][1]["answers"] = False
    finding = only(cluster)
    assert (finding.code, finding.place) == ("gpu-driver-failed", "node2")
    assert "1 of 2 GPUs answer" in finding.message


def test_memory_errors_of_a_gpu():
    cluster = healthy()
    cluster["nodes"][0]["gpus"]["gpus"][1]["ecc_uncorrected"] = 3
    finding = only(cluster)
    assert (finding.code, finding.place) == ("gpu-ecc", "node1")


# --- Agreement, clocks, storage, limits, speed


@pytest.mark.parametrize(
    ("part", "key", "value", "code"),
    [
        ("software", "torch", "2.6.0", "torch-differs"),
        ("software", "python", "3.10.1", "python-differs"),
        ("software", "nccl", "2.21.5", "nccl-differs"),
        ("software", "script", "beef", "script-differs"),
        ("machine", "architecture", "aarch64", "architecture-differs"),
    ],
)
def test_one_node_that_is_different(part: str, key: str, value: str, code: str):
    cluster = healthy(4)
    cluster["nodes"][2][part][key] = value
    finding = only(cluster)
    assert (finding.code, finding.place) == (code, "node3")


def test_a_variable_that_one_node_has():
    cluster = healthy(4)
    cluster["nodes"][2]["software"]["variables"] = {"NCCL_DEBUG": "INFO"}
    finding = only(cluster)
    assert (finding.code, finding.place, finding.severity) == ("variable-differs", "node3", Severity.WARNING)


def test_torch_without_cuda_and_nccl_of_its_own_is_one_finding():
    cluster = healthy(4)
    cluster["nodes"][2]["software"] |= {"torch": "2.6.0+cpu", "cuda": None, "nccl": None}
    assert only(cluster).code == "torch-differs"


@pytest.mark.parametrize("ahead", [60.0, -60.0])
def test_a_clock_that_is_off(ahead: float):
    cluster = healthy()
    cluster["nodes"][1]["late"] = 0.01 - ahead
    cluster["nodes"][0]["network"]["clock_offset"] = ahead
    cluster["nodes"][1]["network"]["clock_offset"] = -ahead
    finding = only(cluster)
    assert (finding.code, finding.place) == ("clock-off", "node2")
    assert f"60 s {'ahead' if ahead > 0 else 'behind'}" in finding.message


def test_lines_that_come_late_are_not_a_wrong_clock():
    cluster = healthy()
    cluster["nodes"][1]["late"] = 20.0
    assert codes(cluster) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [("EROFS", "directory-not-writable"), ("ENOSPC", "directory-full"), ("EDQUOT", "directory-full")],
)
def test_a_directory_that_takes_nothing(error: str, code: str):
    cluster = healthy()
    cluster["nodes"][1]["shared"] |= {"write_error": error, "write_rate": None}
    cluster["nodes"][0]["shared"]["unseen"] = [1]
    finding = only(cluster)
    assert (finding.code, finding.place) == (code, "node2")


def test_a_directory_that_is_full_for_all_is_shared_all_the_same():
    cluster = healthy(4)
    for parts in cluster["nodes"].values():
        parts["shared"] |= {"write_error": "ENOSPC", "write_rate": None, "saw_mark": False}
    finding = only(cluster)
    assert (finding.code, finding.place) == ("directory-full", "node1, node2, node3 and node4")


def test_a_full_shm_is_an_error():
    cluster = healthy()
    cluster["nodes"][1]["machine"]["shm"] = {"bytes": 2**20, "free": 2**20}
    finding = only(cluster)
    assert (finding.code, finding.place, finding.severity) == ("no-shared-memory", "node2", Severity.ERROR)


def test_a_slow_link_among_fast_ones():
    cluster = healthy(4)
    cluster["nodes"][2]["network"]["sends"] = {"3": 1e8}
    finding = only(cluster)
    assert (finding.code, finding.place) == ("slow-link", "node3")


def test_links_that_are_all_slow_are_not_a_culprit():
    cluster = healthy(4)
    for i, parts in enumerate(cluster["nodes"].values()):
        parts["network"]["sends"] = {"3": 1e8 + i}
        parts["names"]["interfaces"]["eth0"]["mbit"] = 1000
    assert codes(cluster) == []


def test_a_straggler_and_who_takes_its_core():
    cluster = healthy(4)
    for node, parts in cluster["nodes"].items():
        parts["speed"]["ranks"] = [{"rank": 2 * node + i, "slowdown": 1.05} for i in range(2)]
    speed = cluster["nodes"][1]["speed"]
    speed["ranks"][1]["slowdown"] = 2.1
    speed["busy"] = [{"pid": 4711, "name": "stress", "cpu": 5}]
    finding = only(cluster)
    assert (finding.code, finding.place) == ("straggler", "node2")
    assert "rank 3" in finding.message and "stress (pid 4711)" in finding.message


def test_a_busy_machine_without_a_visible_cause_has_no_straggler():
    cluster = healthy(4)
    for node, parts in cluster["nodes"].items():
        parts["speed"]["ranks"] = [{"rank": 2 * node + i, "slowdown": 1.0 + 2.0 * i} for i in range(2)]
    assert codes(cluster) == []


def test_a_straggler_on_a_cluster_that_hides_the_processes_of_others():
    cluster = healthy(4)
    for node, parts in cluster["nodes"].items():
        parts["speed"]["ranks"] = [{"rank": 2 * node + i, "slowdown": 1.05} for i in range(2)]
    speed = cluster["nodes"][1]["speed"]
    speed["ranks"][1]["slowdown"] = 2.1
    speed["hidden"] = True
    finding = only(cluster)
    assert (finding.code, finding.place) == ("straggler", "node2")
    assert "a process that this cluster hides" in finding.message


def test_on_a_laptop_other_programs_are_no_fault():
    cluster = laptop()
    cluster["nodes"][0]["speed"] = {
        "ranks": [{"rank": 0, "slowdown": 4.0}],
        "busy": [{"pid": 1, "name": "cc1", "cpu": cluster["ranks"][0]["affinity"][0]}],
    }
    assert codes(cluster) == []


# --- With tensors


def computed(cluster: Cluster) -> list[dict[str, Any]]:
    """Adds what the second round says of healthy ranks; returns the ranks' facts."""
    found = []
    for one in cluster["ranks"]:
        facts_of = {
            "rank": one["rank"],
            "stage": "end",
            "device": "cuda:0",
            "flops": 6e14,
            "right": True,
            "wrong": [],
        }
        part = cluster["nodes"][one["node"]].setdefault("compute", {"ranks": [], "nccl": None})
        part["ranks"].append(facts_of)
        found.append(facts_of)
    return found


def test_healthy_ranks_with_tensors():
    cluster = healthy(4, 4)
    computed(cluster)
    assert codes(cluster) == []


def test_the_rank_that_computes_wrong_sums():
    cluster = healthy(2, 4)
    ranks = computed(cluster)
    for one in ranks:
        one["wrong"] = [5] if one["rank"] != 5 else [rank for rank in range(8) if rank != 5]
        one["right"] = False
    finding = only(cluster)
    assert (finding.code, finding.place) == ("all-reduce-wrong", "node2")
    assert "most often rank 5" in finding.message


def test_the_slow_gpu():
    cluster = healthy(2, 4)
    computed(cluster)[6]["flops"] = 3e14
    finding = only(cluster)
    assert (finding.code, finding.place) == ("slow-rank", "node2")
    assert "rank 6" in finding.message


def test_the_rank_that_fails_first_is_the_cause_and_not_those_that_waited_for_it():
    cluster = healthy(2, 2)
    ranks = computed(cluster)
    for one in ranks:
        one |= {"stage": "failed", "at": "group", "error": "DistStoreError: timed out"}
    ranks[2] |= {"at": "device", "error": "RuntimeError: CUDA error: out of memory"}
    finding = only(cluster)
    assert (finding.code, finding.place) == ("compute-failed", "node2")
    assert "rank 2" in finding.message and "out of memory" in finding.message


def test_nccl_on_sockets_beside_infiniband():
    cluster = healthy()
    computed(cluster)
    for parts in cluster["nodes"].values():
        parts["compute"]["nccl"] = {"network": "Socket", "plugin": "No plugin found (libnccl-net.so)"}
    assert codes(cluster) == []  # there is nothing better
    for parts in cluster["nodes"].values():
        parts["machine"]["infiniband"] = ["mlx5_0"]
    assert only(cluster).code == "nccl-on-sockets"


# --- Scale


def test_five_faults_among_4096_ranks_are_named():
    cluster, expected = five_faults()
    assert {finding.code: finding.place for finding in judge(facts(cluster))} == expected
