"""Which rank uses which GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankup.doctor.facts import Facts, Part, ranks_named
from rankup.doctor.judges.findings import finding, merged
from rankup.findings.finding import Finding


def judge(facts: Facts) -> Iterator[Finding]:
    yield from merged(
        facts,
        (
            (node, finding)
            for node, ranks in facts.ranks_of.items()
            if facts.part(node, "gpus").get("state") != "failed"  # reported as such
            for finding in _node(facts, node, ranks)
        ),
    )


def _node(facts: Facts, node: int, ranks: Sequence[Part]) -> Iterator[Finding]:
    gpus = {gpu for one in ranks for gpu in one.get("gpus", ())}
    given = next((one["job"]["gpus"] for one in ranks if (one.get("job") or {}).get("gpus")), None)
    available = _number_of(given) or max(len(gpus), len(facts.part(node, "gpus").get("gpus", ())))
    if not gpus:
        if given and facts.part(node, "gpus").get("state") == "none":
            yield finding("gpus-not-visible")
        return
    installed = {gpu["uuid"] for gpu in facts.part(node, "gpus").get("gpus", ())}
    # Agents of torchrun, or of rankup, are one task each, and see all GPUs: they start the ranks themselves.
    if len(ranks) > available and len(ranks) > 1:
        yield finding(
            "more-ranks-than-gpus",
            ranks=len(ranks),
            available=_count(available, "GPU"),
            number=available,
            fix=f"--ntasks-per-node={available}, or --gpus-per-node={len(ranks)}"
            if ranks[0]["launcher"] == "srun"
            else "",
        )
        return
    by_device: dict[str, list[int]] = {}
    for one in ranks:
        if one.get("device"):
            by_device.setdefault(one["device"], []).append(int(one["rank"]))
    for device, sharing in by_device.items():
        if len(sharing) > 1:
            values = sorted({str(one.get("visible")) for one in ranks if int(one["rank"]) in sharing})
            yield finding(
                "gpu-shared", ranks=ranks_named(sharing), device=device, visible=" and ".join(values)
            )
    visible = {len(one.get("gpus", ())) for one in ranks}
    if len(ranks) > 1 and visible == {1} and len(by_device) == len(ranks):
        yield finding("one-gpu-per-task")
    complete = len(ranks) >= int(ranks[0]["local_world_size"])  # who is missing is reported as such
    if complete and len(ranks) < len(gpus) and ranks[0]["launcher"] not in ("rankup", "none"):
        yield finding(
            "gpus-unused",
            ranks=_count(len(ranks), "rank"),
            gpus=_count(len(gpus), "GPU"),
            idle=len(gpus) - len(ranks),
            number=len(gpus),
        )
    job = ranks[0].get("job") or {}
    if job.get("scheduler") == "slurm" and not given and installed and ranks[0].get("visible") is None:
        yield finding("gpus-not-requested", gpus=_count(len(gpus), "GPU"))


def _number_of(given: str | None) -> int:
    """How many GPUs SLURM says that there are: a number, or a list of indices."""
    if not given:
        return 0
    return int(given) if given.isdigit() else len(given.split(","))


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
