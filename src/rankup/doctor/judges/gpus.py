"""GPUs that the driver does not give, or that report errors."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.doctor.facts import Facts
from rankup.findings.finding import Confidence, Finding, Severity


def judge(facts: Facts) -> Iterator[Finding]:
    states = facts.parts("gpus")
    for node, part in states.items():
        host = facts.host(node)
        if part.get("state") == "failed":
            answers = sum(bool(gpu.get("answers")) for gpu in part.get("gpus", ()))
            listed = len(part.get("gpus", ()))
            some = f"; {answers} of {listed} GPUs answer" if listed else ""
            yield Finding(
                "gpu-driver-failed",
                Severity.ERROR,
                f"nvidia-smi fails on {host}: {part.get('error', '')}{some}",
                place=host,
                why="CUDA will not start there, or loses a GPU",
                fix=f"exclude the host (sbatch --exclude={host}) and report it",
            )
        for gpu in part.get("gpus", ()):
            if gpu.get("ecc_uncorrected"):
                yield Finding(
                    "gpu-ecc",
                    Severity.ERROR,
                    f"GPU {gpu['index']} of {host} has {gpu['ecc_uncorrected']} uncorrected memory errors",
                    place=host,
                    why="results may be wrong, and CUDA ends processes that touch the page",
                    fix=f"exclude the host (sbatch --exclude={host}) and report it: the GPU requires a reset",
                )
        if part.get("xid"):
            yield Finding(
                "gpu-xid",
                Severity.WARNING,
                f"the kernel of {host} has logged GPU errors (Xid): {', '.join(part['xid'][-3:])}",
                place=host,
                why="some come from programs, others from failing hardware (48, 63, 64, 74, 79, 94, 95)",
                fix="read https://docs.nvidia.com/deploy/xid-errors, and report hardware errors",
                confidence=Confidence.LIKELY,
            )
    yield from _differ(facts)


def _differ(facts: Facts) -> Iterator[Finding]:
    kinds: dict[str, list[int]] = {}
    for node, part in facts.parts("gpus").items():
        if part.get("state") != "failed":
            names = sorted(gpu["name"] for gpu in part.get("gpus", ()))
            kinds.setdefault(_counted(names), []).append(node)
    if len(kinds) > 1:
        words = "; ".join(f"{what} on {facts.named(nodes)}" for what, nodes in kinds.items())
        fewest = min(map(len, kinds.values()))
        least = sorted(node for nodes in kinds.values() if len(nodes) == fewest for node in nodes)
        yield Finding(
            "gpus-differ",
            Severity.WARNING,
            f"the nodes have different GPUs: {words}",
            place=facts.named(least),
            why="all ranks wait for the slowest",
            fix="ask for one kind (--gpus-per-node=TYPE:N, --constraint), or exclude the others",
        )


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"
