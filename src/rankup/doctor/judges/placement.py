"""Which rank uses which GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankup.doctor.facts import Facts, Part, ranks_named
from rankup.doctor.judges.per_node import merged
from rankup.findings.finding import Confidence, Finding, Severity


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
            yield Finding(
                "gpus-not-visible",
                Severity.WARNING,
                "the job has GPUs, but no driver shows them",
                why="nvidia-smi is missing there, or sees no device",
                fix="in a container: apptainer exec --nv; otherwise report the host",
                confidence=Confidence.LIKELY,
            )
        return
    installed = {gpu["uuid"] for gpu in facts.part(node, "gpus").get("gpus", ())}
    # Agents of torchrun, or of rankup, are one task each, and see all GPUs: they start the ranks themselves.
    if len(ranks) > available and len(ranks) > 1:
        yield Finding(
            "more-ranks-than-gpus",
            Severity.ERROR,
            f"{len(ranks)} ranks and {_count(available, 'GPU')}",
            why="ranks that share a GPU fail with NCCL (Duplicate GPU detected), or with an invalid device ordinal",
            fix=f"--ntasks-per-node={available}, or --gpus-per-node={len(ranks)}"
            if ranks[0]["launcher"] == "srun"
            else f"--nproc-per-node {available}, or ask for {len(ranks)} GPUs per node",
        )
        return
    by_device: dict[str, list[int]] = {}
    for one in ranks:
        if one.get("device"):
            by_device.setdefault(one["device"], []).append(int(one["rank"]))
    for device, sharing in by_device.items():
        if len(sharing) > 1:
            values = sorted({str(one.get("visible")) for one in ranks if int(one["rank"]) in sharing})
            yield Finding(
                "gpu-shared",
                Severity.ERROR,
                f"{ranks_named(sharing)} use one GPU ({device})",
                why=f"CUDA_VISIBLE_DEVICES is {' and '.join(values)} there; NCCL fails (Duplicate GPU detected)",
                fix="ask for --gpus-per-node, set CUDA_VISIBLE_DEVICES nowhere by hand, and use cuda:LOCAL_RANK",
            )
    visible = {len(one.get("gpus", ())) for one in ranks}
    if len(ranks) > 1 and visible == {1} and len(by_device) == len(ranks):
        yield Finding(
            "one-gpu-per-task",
            Severity.NOTE,
            "each rank sees one GPU, its own",
            why="cuda:LOCAL_RANK fails there (invalid device ordinal), and GPUs may lose direct access to each other",
            fix="--gpus-per-node instead of --gpus-per-task; or use device 0 in each rank, as rankup does",
        )
    complete = len(ranks) >= int(ranks[0]["local_world_size"])  # who is missing is reported as such
    if complete and len(ranks) < len(gpus) and ranks[0]["launcher"] not in ("rankup", "none"):
        yield Finding(
            "gpus-unused",
            Severity.WARNING,
            f"{_count(len(ranks), 'rank')} and {_count(len(gpus), 'GPU')}",
            why=f"{len(gpus) - len(ranks)} of them will do nothing, unless each task is a torchrun",
            fix=f"--ntasks-per-node={len(gpus)}, or fewer GPUs",
            confidence=Confidence.LIKELY,
        )
    job = ranks[0].get("job") or {}
    if job.get("scheduler") == "slurm" and not given and installed and ranks[0].get("visible") is None:
        yield Finding(
            "gpus-not-requested",
            Severity.WARNING,
            f"{_count(len(gpus), 'GPU')} visible, but the job has asked for none",
            why="other jobs may be using them",
            fix="ask for them: --gpus-per-node",
            confidence=Confidence.LIKELY,
        )


def _number_of(given: str | None) -> int:
    """How many GPUs SLURM says that there are: a number, or a list of indices."""
    if not given:
        return 0
    return int(given) if given.isdigit() else len(given.split(","))


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
