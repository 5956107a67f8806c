"""The devices of this process, found without torch: GPUs, and the CPUs it is bound to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankup.core.shell import run

_GPU_LINE = re.compile(r"GPU (\d+): (.*) \(UUID: (GPU-[^)]+)\)")
_MIG_LINE = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Gpu:
    """One GPU of ``nvidia-smi -L``, with the UUIDs of its MIG instances."""

    index: int
    name: str
    uuid: str
    migs: tuple[str, ...] = ()


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """The GPUs in the output of ``nvidia-smi -L``; a MIG instance belongs to the GPU above it."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if match := _GPU_LINE.match(line):
            gpus.append(Gpu(int(match[1]), match[2], match[3]))
        elif (match := _MIG_LINE.match(line)) and gpus:
            last = gpus.pop()
            gpus.append(Gpu(last.index, last.name, last.uuid, (*last.migs, match[1])))
    return gpus


def visible_gpus(installed: Sequence[Gpu], visible: str | None) -> list[str]:
    """The devices that CUDA shows if CUDA_VISIBLE_DEVICES is ``visible`` (None: unset), in its order.

    Entries are indices or beginnings of UUIDs. As in CUDA, the first entry that names no device ends the list (so
    -1 and the empty text hide all), and a device that is named twice hides all too.
    """
    if visible is None:
        return [str(gpu.index) for gpu in installed]
    shown: list[str] = []
    names: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        name = _device_named(entry, installed)
        if name is None:
            break
        shown.append(entry)
        names.append(name)
    return shown if len(set(names)) == len(names) else []


def _device_named(entry: str, installed: Sequence[Gpu]) -> str | None:
    if entry.isascii() and entry.isdigit():
        return next((gpu.uuid for gpu in installed if gpu.index == int(entry)), None)
    uuids = [uuid for gpu in installed for uuid in (gpu.uuid, *gpu.migs)]
    matches = [uuid for uuid in uuids if entry.startswith(("GPU-", "MIG-")) and uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def listed_amd_gpus(env: Mapping[str, str]) -> list[str]:
    """The entries of HIP_VISIBLE_DEVICES, else of ROCR_VISIBLE_DEVICES, up to the first that names no device.

    HIP's list chooses among the devices of ROCR's list, so it decides if both are set.
    """
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in env:
            entries = [entry.strip() for entry in env[name].split(",")]
            bad = [index for index, entry in enumerate(entries) if not re.fullmatch(r"\d+|GPU-\w+", entry)]
            return entries[: bad[0]] if bad else entries
    return []


def find_gpus(env: Mapping[str, str] = os.environ) -> list[str]:
    """The GPUs that a process with this environment sees, as their indices or UUIDs.

    NVIDIA's GPUs are those that ``nvidia-smi`` lists. Without nvidia-smi, AMD's are read from the variables
    that schedulers set for them.
    """
    listing = run(["nvidia-smi", "-L"], timeout=30)
    if listing.code == 0:
        return visible_gpus(parse_nvidia_smi(listing.out), env.get("CUDA_VISIBLE_DEVICES"))
    return listed_amd_gpus(env)


def count_gpus(env: Mapping[str, str] = os.environ) -> int:
    """How many GPUs a process with this environment sees."""
    return len(find_gpus(env))


def device_of(local_rank: int, gpus: int) -> str:
    """``cuda:1``, or ``cpu`` without GPUs. A process that sees a single GPU uses it, on any rank."""
    return f"cuda:{local_rank % gpus}" if gpus else "cpu"


def cpu_affinity() -> list[int]:
    """The CPUs on which this process may run; all of them if the system does not tell (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
