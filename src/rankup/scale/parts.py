"""Why it does not scale: the parts of a step of each configuration, and the largest loss among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankup.core.columns import aligned
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.scale.families import label, measured
from rankup.scale.results import PARTS, Configuration, StudyResults

# Share of a step from which a part is a finding.
MUCH = 0.25
_WORDS = {"data": "waiting for data", "optimizer": "the optimizer"}


@dataclass(frozen=True)
class Loss:
    """``seconds`` of each step that ``part`` takes more than it would if the devices brought all that they can.

    ``share`` is the part's share of the step.
    """

    part: str
    seconds: float
    share: float


def share(parts: Mapping[str, float], part: str) -> float:
    """Of the whole step."""
    return parts.get(part, 0.0) / (sum(parts.values()) or 1.0)


def word(part: str, nodes: int) -> str:
    """What takes the time, as the subject of a sentence."""
    if part == "communication":
        return "the network" if nodes > 1 else "communication between the processes"
    return _WORDS.get(part, "computing")


def parts_table(study: StudyResults) -> str:
    """Milliseconds of a step by part, and their shares; "" if they were not measured."""
    rows = [["configuration", "step", *PARTS]]
    for one in _told(study):
        parts = one.runs[0].breakdown
        cells = [
            f"{1000 * parts.get(part, 0.0):.{_digits(parts)}f} ({share(parts, part):.0%})" for part in PARTS
        ]
        whole = f"{1000 * sum(parts.values()):.{_digits(parts)}f} ms"
        rows.append([label(one, study), whole, *cells])
    if len(rows) == 1:
        return ""
    lines = aligned(rows, right=range(1, len(rows[0])))
    return "\n".join(["where the time of a step goes, in ms", *(f"  {line}" for line in lines)])


def largest_loss(study: StudyResults) -> str:
    """The largest loss of the largest configuration, as a sentence; "" if nothing was measured or nothing is lost."""
    told = _told(study)
    if len(told) < 2:
        return ""
    base, most = min(told, key=_devices), max(told, key=_devices)
    loss = _loss(study, base, most)
    if loss is None:
        return ""
    return f"the largest loss of {label(most, study)}: {_sentence(loss, label(base, study), most)}"


def limits(study: StudyResults) -> Iterator[Finding]:
    """What takes a large share of a step, besides computing."""
    told = _told(study)
    if len(told) < 2:
        return
    base = min(told, key=_devices)
    for one in told:
        loss = _loss(study, base, one) if _devices(one) > _devices(base) else None
        if loss is None or loss.part not in _ADVICE or loss.share < MUCH:
            continue
        code, why, fix = _ADVICE[loss.part]
        if loss.part == "communication" and one.runs[0].nodes == 1:
            code, why, fix = _WITHIN
        yield Finding(
            code,
            Severity.WARNING,
            f"{label(one, study)}: {_sentence(loss, label(base, study), one)}",
            place="step",
            why=why,
            fix=fix,
            confidence=Confidence.LIKELY,
        )


_ADVICE = {
    "communication": (
        "network-limits",
        "the gradients cross the network in each step, and computing does not hide it",
        "a larger global batch or --accumulate sends them less often; check that the fast interface is used "
        "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
    ),
    "data": (
        "data-limits",
        "the processes wait until the next batch is ready",
        "more loader workers or more cores per process; data on a local disk or in memory",
    ),
}
_WITHIN = (
    "communication-limits",
    "the processes exchange their gradients in each step, and computing does not hide it",
    "a larger global batch or --accumulate exchanges them less often",
)


def _loss(study: StudyResults, base: Configuration, one: Configuration) -> Loss | None:
    """The part that takes most in excess of the baseline's, which the devices share if the work is fixed."""
    before, parts = base.runs[0].breakdown, one.runs[0].breakdown
    times = _devices(one) / _devices(base) if study.scaling == "strong" else 1.0
    excess = {part: parts.get(part, 0.0) - before.get(part, 0.0) / times for part in PARTS}
    part = max(PARTS, key=lambda name: excess[name])
    return Loss(part, excess[part], share(parts, part)) if excess[part] > 0 else None


def _sentence(loss: Loss, base: str, one: Configuration) -> str:
    nodes = one.runs[0].nodes
    where = f" on {nodes} node{'s' * (nodes > 1)}"
    said = f"{word(loss.part, nodes)} takes {100 * loss.share:.0f} % of a step{where}"
    if loss.part in ("compute", "optimizer"):
        now = 1000 * one.runs[0].breakdown.get(loss.part, 0.0)
        said += f", {1000 * loss.seconds:.{2 if now < 10 else 1}f} ms more than its share of {base}"
    return said


def _told(study: StudyResults) -> list[Configuration]:
    return [one for one in measured(study) if sum(one.runs[0].breakdown.values()) > 0]


def _devices(one: Configuration) -> int:
    return one.runs[0].devices


def _digits(parts: Mapping[str, float]) -> int:
    return 2 if sum(parts.values()) < 0.01 else 1
