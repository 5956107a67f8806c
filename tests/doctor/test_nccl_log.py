"""NCCL's own words (lines of NCCL 2.18 to 2.26, NCCL_DEBUG=INFO)."""

from __future__ import annotations

from rankup.doctor.probes.compute import read_nccl_log

SOCKETS = """\
node1:101:101 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node1:101:101 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
node1:101:101 [0] NCCL INFO cudaDriverVersion 12040
NCCL version 2.20.5+cuda12.4
node1:101:120 [0] NCCL INFO NET/IB : No device found.
node1:101:120 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node1:101:120 [0] NCCL INFO Using network Socket
node1:101:120 [0] NCCL INFO Channel 00/0 : 3[3] -> 0[0] [receive] via NET/Socket/0
node1:101:120 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
"""
SLINGSHOT = """\
nid1:7:7 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v8)
nid1:7:9 [0] NCCL INFO Using network AWS Libfabric
nid1:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 4[0] [send] via NET/AWS Libfabric/1/GDRDMA
nid1:7:9 [0] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct
"""


def test_sockets():
    found = read_nccl_log(SOCKETS)
    assert found == {
        "version": "2.20.5",
        "network": "Socket",
        "between": ["NET/Socket"],
        "inside": ["P2P/CUMEM"],
        "plugin": "No plugin found (libnccl-net.so)",
        "interface": "eth0",
    }


def test_slingshot():
    found = read_nccl_log(SLINGSHOT)
    assert (found["network"], found["between"]) == ("AWS Libfabric", ["NET/AWS Libfabric"])
    assert found["inside"] == ["SHM/direct"]


def test_no_log():
    assert read_nccl_log("")["network"] is None
