"""GPUs from a stand-in for NVML: the job's alone, and no driver, however broken, ends a sampler."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from rankup.monitor.gpus import Gpus

UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2")
TOTAL = {"memory_total": 80 << 30}
FIRST = {"index": 0, "uuid": UUIDS[0], "utilization": 10, "memory_bytes": 1 << 30, "power_w": 101.5} | TOTAL
SECOND = {"index": 1, "uuid": UUIDS[1], "utilization": 20, "memory_bytes": 2 << 30, "power_w": 202.5} | TOTAL
FIRST["temperature_c"], SECOND["temperature_c"] = 40, 50


class NVMLError(Exception):
    pass


class StandIn:
    """Two GPUs; a call that ``broken`` names raises, and those of a GPU in ``lost``."""

    NVML_TEMPERATURE_GPU = 0

    def __init__(self):
        self.broken = set()
        self.lost = set()

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in self.broken:
            raise NVMLError(name)
        return object.__getattribute__(self, name)

    def _gpu(self, handle):
        if handle in self.lost:
            raise NVMLError("GPU is lost")
        return (FIRST, SECOND)[handle]

    def nvmlInit(self):
        pass

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetIndex(self, handle):
        return handle

    def nvmlDeviceGetUUID(self, handle):
        if handle == "part":
            return "MIG-7"
        return UUIDS[handle].encode() if handle else UUIDS[handle]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-7":
            raise NVMLError("not found")
        return "part"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        assert handle == "part"
        return 1

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=self._gpu(handle)["utilization"], memory=99)

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle == "part":
            return SimpleNamespace(used=5, total=10)
        return SimpleNamespace(used=self._gpu(handle)["memory_bytes"], total=80 << 30)

    def nvmlDeviceGetPowerUsage(self, handle):
        return int(self._gpu(handle)["power_w"] * 1000)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        assert sensor == 0
        return self._gpu(handle)["temperature_c"]


@pytest.fixture
def nvml(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [FIRST, SECOND]),
        ("1", [SECOND]),
        ("1, 0", [SECOND, FIRST]),
        ("GPU-bb", [SECOND]),
        ("", []),
        ("-1", []),
        ("0,7,1", [FIRST]),
        ("GPU-cc", []),
        ("NoDevFiles", []),
    ],
)
def test_the_gpus_are_those_that_the_job_sees(nvml, visible, seen):
    assert Gpus(visible).read() == seen


def test_a_mig_instance_tells_its_memory(nvml):
    [one] = Gpus("MIG-7").read()
    silent = dict.fromkeys(("utilization", "power_w", "temperature_c"))
    assert one == {"index": 1, "uuid": "MIG-7", "memory_bytes": 5, "memory_total": 10, **silent}


def test_a_gpu_that_does_not_tell_its_name_is_sampled(nvml):
    nvml.broken = {"nvmlDeviceGetUUID"}
    assert Gpus(None).read() == [{**FIRST, "uuid": None}, {**SECOND, "uuid": None}]


def test_without_the_bindings_there_are_no_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus(None).read() == []


@pytest.mark.parametrize(
    "call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"]
)
def test_a_driver_that_fails_at_the_start_means_no_gpus(nvml, call):
    nvml.broken = {call}
    assert Gpus("GPU-bb").read() == []


def test_a_mig_instance_that_does_not_exist_means_no_gpus(nvml):
    assert Gpus("MIG-8").read() == []


def test_a_driver_that_fails_later_means_no_gpus_from_then_on(nvml):
    gpus = Gpus(None)
    assert gpus.read() == [FIRST, SECOND]
    nvml.lost = {0}
    assert gpus.read() == [SECOND]
    nvml.lost = {0, 1}
    assert gpus.read() == []


def test_what_a_gpu_does_not_tell_is_none(nvml):
    gpus = Gpus(None)
    nvml.broken = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"}
    assert gpus.read()[0] == {**FIRST, "power_w": None, "temperature_c": None}
