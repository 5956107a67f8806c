"""Which devices a process sees, as CUDA counts them, and which CPUs it may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankup.world.devices import (
    Gpu,
    count_gpus,
    cpu_affinity,
    device_of,
    find_gpus,
    listed_amd_gpus,
    parse_nvidia_smi,
    visible_gpus,
)

LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aa5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
"""
TWO = parse_nvidia_smi(LISTING)


def test_mig_instances_belong_to_their_gpu_and_are_not_counted_beside_it():
    assert [gpu.index for gpu in TWO] == [0, 1]
    assert TWO[0].name == "NVIDIA A100-SXM4-40GB"
    assert [uuid[:8] for uuid in TWO[0].migs] == ["MIG-c6d4", "MIG-cba6"]
    assert TWO[1] == Gpu(1, "NVIDIA A100-SXM4-40GB", "GPU-aa5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77")


@pytest.mark.parametrize("text", ["", "No devices found.\n", "  MIG 1g.5gb Device 0: (UUID: MIG-x)\n"])
def test_a_listing_without_gpus_has_none(text):
    assert parse_nvidia_smi(text) == []


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, ["0", "1"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", ["1"]),
        ("1,0", ["1", "0"]),
        (" 0 , 1 ", ["0", "1"]),
        ("0,-1,1", ["0"]),
        ("0,7,1", ["0"]),
        ("1,1", []),
        ("GPU-aa5b", ["GPU-aa5b"]),
        ("GPU-aa5b,1", []),
        ("GPU-", []),
        ("GPU-unknown", []),
        ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible, shown):
    assert visible_gpus(TWO, visible) == shown


@pytest.mark.parametrize(
    ("env", "listed"),
    [
        ({}, []),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2"}, ["0", "1", "2"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-abc1,GPU-abc2"}, ["GPU-abc1", "GPU-abc2"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "0"}, []),
        ({"HIP_VISIBLE_DEVICES": "0,-1,1"}, ["0"]),
    ],
)
def test_amd_devices_are_those_that_the_variables_list(env, listed):
    assert listed_amd_gpus(env) == listed


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = "") -> None:
    """A PATH that holds nothing but a pretended nvidia-smi, where ``script`` is given."""
    if script:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_gpus_are_those_that_nvidia_smi_lists_and_cuda_shows(tmp_path, monkeypatch):
    put_on_path(tmp_path, monkeypatch, f"[ \"$1\" = -L ] && echo '{LISTING}'")
    assert count_gpus({}) == 2
    assert find_gpus({"CUDA_VISIBLE_DEVICES": "1"}) == ["1"]


def test_a_broken_driver_is_no_gpu(tmp_path, monkeypatch):
    put_on_path(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == 0


def test_without_nvidia_smi_cuda_variables_make_no_gpu_but_amds_do(tmp_path, monkeypatch):
    put_on_path(tmp_path, monkeypatch)
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}) == 0
    assert count_gpus({"ROCR_VISIBLE_DEVICES": "0,1"}) == 2


@pytest.mark.parametrize(
    ("local_rank", "gpus", "device"),
    [(0, 0, "cpu"), (3, 0, "cpu"), (3, 4, "cuda:3"), (3, 1, "cuda:0"), (5, 4, "cuda:1")],
)
def test_a_rank_takes_the_device_of_its_local_rank(local_rank, gpus, device):
    assert device_of(local_rank, gpus) == device


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_is_what_the_process_is_bound_to():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cpu_affinity() == [min(before)]
    finally:
        os.sched_setaffinity(0, before)


def test_without_affinity_all_cpus_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cpu_affinity() == [0, 1, 2]
