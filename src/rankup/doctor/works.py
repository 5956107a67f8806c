"""What works, a line each: for a login node and a laptop, where nothing is wrong and much may be missing."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.doctor.facts import Facts, Part
from rankup.doctor.judges.before import measures

_SCHEDULERS = {
    "sbatch": "SLURM (sbatch)",
    "qsub": "PBS (qsub)",
    "": "none: jobs cannot be submitted from here",
}


def works(facts: Facts) -> list[tuple[str, str]]:
    """(what, how it is), of the first node that answered, and measures of all."""
    node = next(iter(sorted(facts.nodes)), None)
    if node is None:
        return []
    machine, software = facts.part(node, "machine"), facts.part(node, "software")
    names = facts.part(node, "names")
    lines = [
        ("scheduler", _SCHEDULERS.get(facts.here.get("scheduler", ""), "")),
        ("Python", software.get("python") or "does not run"),
        ("torch", _torch(software)),
        ("GPUs", _gpus(facts.part(node, "gpus"))),
        (
            "cores",
            f"{len(machine.get('affinity', ()))} of {machine.get('cpus', '?')}, {machine.get('architecture', '?')}",
        ),
        ("addresses", ", ".join(names.get("routes") or names.get("own") or ()) or "none: no network"),
        ("directory", _directory(facts.part(node, "shared"))),
    ]
    for name, title, unit, scale in (
        ("sends", "TCP", "MB/s", 1e6), ("all_reduce", "all-reduce", "MB/s", 1e6), ("flops", "product", "GFLOP/s", 1e9),
    ):  # fmt: skip
        if values := measures(facts)[name].values():
            lines.append((title, _by_host([value / scale for value in values], unit)))
    return lines


def _by_host(values: Sequence[float], unit: str) -> str:
    """``208 GFLOP/s`` of one host, or of hosts that are alike; else ``190 to 208 GFLOP/s by host``."""
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit} by host"


def _torch(software: Part) -> str:
    if not software.get("torch"):
        return "not installed"
    cuda = software.get("cuda")
    return f"{software['torch']}{f', CUDA {cuda}' if cuda else ', without CUDA'}"


def _gpus(part: Part) -> str:
    gpus = [gpu["name"] for gpu in part.get("gpus", ())]
    return ", ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)) or "none"


def _directory(part: Part) -> str:
    if not part.get("exists"):
        return f"{part.get('folder', '?')} does not exist"
    rate = f", writes {part['write_rate'] / 1e6:,.0f} MB/s" if part.get("write_rate") else ""
    return (
        f"{part['folder']} ({part.get('kind') or '?'}), {part.get('free', 0) / 1024**3:,.0f} GiB free{rate}"
    )
