"""An earlier examination, kept with ``--out``: what is slower now, and what has changed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankup.doctor.facts import Facts
from rankup.doctor.judges.findings import finding
from rankup.errors import RankupError
from rankup.findings.finding import Finding

_VERSIONS = ("python", "torch", "cuda", "nccl")


def read_before(path: Path) -> Facts:
    """The facts of a file that ``--out`` wrote. Raises ``bad-examination``."""
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(text, dict) or "rankup_doctor" not in text:
            raise ValueError("it is not a result of rankup doctor")
        nodes = {int(node): parts for node, parts in text["nodes"].items()}
        return Facts(tuple(text["hosts"]), nodes, text["ranks"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RankupError(
            "bad-examination",
            f"cannot compare with {path.name}: {error}",
            context=str(path),
            hint="rankup doctor --out FILE writes one",
        ) from error


def compare(before: Facts, now: Facts) -> Iterator[Finding]:
    """What is much slower than before, by host; and versions that have changed, since they may be the reason."""
    limit = finding.limits["slower-than-before"]["of_before"]
    for name, (what, unit) in _MEASURES.items():
        old, new = measures(before).get(name, {}), measures(now).get(name, {})
        # Hosts that were there before, else the usual value: another allocation has other hosts.
        usual = statistics.median(old.values()) if old else 0.0
        slower = {host: rate for host, rate in new.items() if rate < limit * old.get(host, usual)}
        if slower:
            host = min(slower, key=lambda one: slower[one])
            yield finding(
                "slower-than-before",
                ", ".join(sorted(slower)),
                what=what,
                rate=slower[host] / 1e6,
                unit=unit,
                before=old.get(host, usual) / 1e6,
            )
    for name in _VERSIONS:
        old_versions, new_versions = _versions(before, name), _versions(now, name)
        if old_versions != new_versions and old_versions and new_versions:
            yield finding(
                "version-changed",
                name=name,
                now=" and ".join(new_versions),
                before=" and ".join(old_versions),
            )


_MEASURES = {
    "sends": ("TCP between nodes", "MB/s"),
    "writes": ("writes to the shared directory", "MB/s"),
    "flops": ("matrix products", "MFLOP/s"),
    "all_reduce": ("all-reduce", "MB/s"),
}


def measures(facts: Facts) -> dict[str, dict[str, float]]:
    """What was measured: name → host → value, per second."""
    found: dict[str, dict[str, float]] = {name: {} for name in _MEASURES}
    for node in facts.nodes:
        host = facts.host(node)
        ranks = facts.part(node, "compute").get("ranks", ())
        values = {
            "sends": list(facts.part(node, "network").get("sends", {}).values()),
            "writes": [facts.part(node, "shared").get("write_rate")],
            "flops": [one.get("flops") for one in ranks],
            "all_reduce": [
                max(one["bytes_per_second"].values()) for one in ranks if one.get("bytes_per_second")
            ],
        }
        for name, several in values.items():
            known = [float(value) for value in several if value]
            if known:
                found[name][host] = min(known)
    return found


def _versions(facts: Facts, name: str) -> list[str]:
    parts: list[Mapping[str, Any]] = list(facts.parts("software").values())
    return sorted({str(part[name]) for part in parts if part.get(name)})
