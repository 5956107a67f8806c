"""What nvidia-smi says of this node's GPUs, and the kernel's log of their failures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rankup.core import shell
from rankup.doctor.plan import Plan
from rankup.world.devices import parse_nvidia_smi

_FIELDS = (
    *("index", "uuid", "name", "driver_version", "pci.bus_id", "memory.used", "memory.total"),
    *("ecc.errors.uncorrected.volatile.total", "compute_mode"),
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")


def probe(plan: Plan, node: int) -> dict[str, Any]:
    """``state`` is ok, none (no nvidia-smi, or no device) or failed, with nvidia-smi's words as ``error``."""
    listed = shell.run(["nvidia-smi", "-L"], timeout=5)
    if listed.code == 127 or (listed.code == 0 and "No devices were found" in listed.out):
        return {"state": "none", "gpus": []}
    gpus: list[dict[str, Any]] = [
        {"index": gpu.index, "name": gpu.name, "uuid": gpu.uuid} for gpu in parse_nvidia_smi(listed.out)
    ]
    if listed.code != 0 or not gpus:
        return {"state": "failed", "error": _last(listed), "gpus": gpus}
    asked = shell.run(
        ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"], timeout=5
    )
    details = [
        dict(zip(_FIELDS, map(str.strip, row.split(",")), strict=False)) for row in asked.out.splitlines()
    ]
    by_uuid = {row.get("uuid", ""): row for row in details}
    for gpu in gpus:
        row = by_uuid.get(gpu["uuid"])
        gpu["answers"] = row is not None
        gpu.update(_details(row or {}))
    # Some GPUs may have answered before one failed: the list alone may even end with 0.
    failed = {"state": "failed", "error": _last(asked)} if asked.code != 0 else {"state": "ok"}
    return {**failed, "gpus": gpus, "xid": _xids()}


def _details(row: dict[str, str]) -> dict[str, Any]:
    bus = row.get("pci.bus_id", "")
    return {
        "driver": row.get("driver_version"),
        "bus": bus,
        "numa": _numa_of(bus),
        "memory_used": _number(row.get("memory.used")),
        "memory_total": _number(row.get("memory.total")),
        "ecc_uncorrected": _number(row.get("ecc.errors.uncorrected.volatile.total")),
        "compute_mode": row.get("compute_mode"),
    }


def _number(text: str | None) -> int | None:
    """None for ``[N/A]``, ``[Unknown Error]`` and the like."""
    return int(text) if text is not None and text.isdigit() else None


def _numa_of(bus: str) -> int | None:
    domain, _, rest = bus.lower().partition(":")
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _xids() -> list[str]:
    """``BUS: number`` of the last Xid errors, where the kernel's log may be read."""
    log = shell.run(["dmesg"], timeout=3)
    return [f"{bus}: {number}" for bus, number in _XID.findall(log.out)][-10:] if log.code == 0 else []


def _last(done: shell.Completed) -> str:
    lines = (done.err.strip() or done.out.strip()).splitlines()
    return lines[-1][:300] if lines else f"exit code {done.code}"
