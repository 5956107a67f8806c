"""Limits of the machines: shared memory, open files, locked memory."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.doctor.facts import Facts
from rankup.findings.finding import Confidence, Finding, Severity

_MIB = 1024**2
_SHM_NONE, _SHM_LITTLE = 16 * _MIB, 512 * _MIB
_FILES = 1024
_LOCKED = 64 * _MIB


def judge(facts: Facts) -> Iterator[Finding]:
    machines = facts.parts("machine")
    shm = {node: part["shm"] for node, part in machines.items() if part.get("shm")}
    if none := [node for node, one in shm.items() if one["free"] < _SHM_NONE]:
        least = min(shm[node]["free"] for node in none)
        yield Finding(
            "no-shared-memory",
            Severity.ERROR,
            f"/dev/shm on {facts.named(none)} has {least / _MIB:.1f} MiB left",
            place=facts.named(none),
            why="NCCL and data-loader workers put their buffers there (bus error, No space left on device)",
            fix="remove files of dead jobs from /dev/shm; in a container: --shm-size=8g, or bind the host's /dev/shm",
        )
    if little := [node for node, one in shm.items() if node not in none and one["bytes"] < _SHM_LITTLE]:
        least = min(shm[node]["bytes"] for node in little)
        yield Finding(
            "little-shared-memory",
            Severity.WARNING,
            f"/dev/shm on {facts.named(little)} has {least / _MIB:.0f} MiB",
            place=facts.named(little),
            why="data-loader workers with large batches end with a bus error",
            fix="in a container: --shm-size=8g, or bind the host's /dev/shm; otherwise DataLoader(num_workers=0)",
        )
    few = [node for node, part in machines.items() if (part["open_files"][0] or _FILES) < _FILES]
    if few:
        least = min(machines[node]["open_files"][0] for node in few)
        yield Finding(
            "few-open-files",
            Severity.WARNING,
            f"a process may open {least} files on {facts.named(few)}",
            place=facts.named(few),
            why="connections to all ranks and data-loader workers require more (Too many open files)",
            fix="ulimit -n 65536 in the job script",
        )
    locked = [
        node
        for node, part in machines.items()
        if part.get("infiniband")
        and part["locked_memory"][0] is not None
        and part["locked_memory"][0] < _LOCKED
    ]
    if locked:
        yield Finding(
            "locked-memory",
            Severity.WARNING,
            f"{facts.named(locked)} may lock {machines[locked[0]]['locked_memory'][0] / _MIB:.1f} MiB of memory",
            place=facts.named(locked),
            why="InfiniBand requires locked memory: NCCL fails with ibv_reg_mr, or falls back to sockets",
            fix="ulimit -l unlimited in the job script; if that is refused, report it",
            confidence=Confidence.LIKELY,
        )
    umasks = {node: part["umask"] for node, part in machines.items() if part.get("umask") is not None}
    if writable := [node for node, umask in umasks.items() if not umask & 0o002]:
        yield Finding(
            "umask-open",
            Severity.NOTE,
            f"with the umask of {facts.named(writable)} everybody may write the files of a run",
            place=facts.named(writable),
            fix="umask 022 in the job script",
        )
