"""Results for people and programs: a text table, one JSON per bench, and ``results/README.md`` made from these."""

from __future__ import annotations

import json
import statistics
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.contest import Result, middle_half
from rankup.core.files import write_atomic

RESULTS = Path(__file__).parent / "results"


def document(result: Result, machine: dict[str, Any]) -> dict[str, Any]:
    """The JSON document of one bench, with the rounds of every number."""
    contenders = {}
    for name, values in result.rounds.items():
        low, high = middle_half(values)
        contenders[name] = {
            "median": statistics.median(values),
            "low": low,
            "high": high,
            "rounds": [float(f"{value:.6g}") for value in values],
        }
    verdicts = [claim.verdict(result.rounds) for claim in result.claims]
    return {
        "bench": result.name,
        "title": result.title,
        "date": date.today().isoformat(),
        "unit": result.unit,
        "settings": result.settings,
        "machine": machine,
        "contenders": contenders,
        "claims": [verdict for verdict in verdicts if verdict is not None],
        "notes": result.notes,
        **({"details": result.details} if result.details else {}),
    }


def text(doc: dict[str, Any]) -> str:
    """The table for a terminal."""
    width = max(len(name) for name in doc["contenders"])
    lines = [
        f"{doc['title']}  ({_settings(doc)})",
        f"{'':{width}}  {doc['unit']:>12}   middle half of rounds",
    ]
    for name, row in doc["contenders"].items():
        spread = f"{_number(row['low'])} – {_number(row['high'])}"
        lines.append(f"{name:{width}}  {_number(row['median']):>12}   {spread}")
    lines.extend(f"→ {claim['claim']}: {_claim_value(claim)}{_target(claim)}" for claim in doc["claims"])
    return "\n".join([*lines, *doc["notes"]])


def save(doc: dict[str, Any]) -> None:
    """Write the bench's JSON, and the page of all benches again."""
    RESULTS.mkdir(exist_ok=True)
    write_atomic(RESULTS / f"{doc['bench']}.json", json.dumps(doc, indent=1, ensure_ascii=False) + "\n")
    docs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    # The folder holds other results too: only those with contenders are benches.
    write_atomic(RESULTS / "README.md", page([each for each in docs if "contenders" in each]))


def page(docs: list[dict[str, Any]]) -> str:
    """Markdown: each claim with its verdict, then each bench with its contenders and its machine."""
    lines = [
        "# Results",
        "",
        "`make bench` writes this page from the JSON files in this folder; do not edit it. A ratio is the median of",
        "those within each round; their middle half is in brackets.",
        "",
        "| bench | claim | measured | target | |",
        "|---|---|---|---|---|",
    ]
    lines.extend(
        f"| {doc['bench']} | {claim['claim']} | {_claim_value(claim)} | {claim['target'] or ''} | {_verdict(claim)} |"
        for doc in docs
        for claim in doc["claims"]
    )
    for doc in docs:
        lines += ["", f"## {doc['title']}", "", f"{doc['date']}; {_settings(doc)}.", _machine(doc), ""]
        lines += [f"| | {doc['unit']} | middle half |", "|---|---:|---|"]
        lines.extend(
            f"| {name} | {_number(row['median'])} | {_number(row['low'])} – {_number(row['high'])} |"
            for name, row in doc["contenders"].items()
        )
        if doc["notes"]:
            lines += ["", *doc["notes"]]
    return "\n".join(lines) + "\n"


def _settings(doc: dict[str, Any]) -> str:
    rounds = len(next(iter(doc["contenders"].values()))["rounds"])
    return ", ".join([*(f"{key} {value}" for key, value in doc["settings"].items()), f"{rounds} rounds"])


def _machine(doc: dict[str, Any]) -> str:
    facts = doc["machine"]
    versions = ", ".join(f"{name} {facts[name]}" for name in ("python", "torch", "lightning", "accelerate"))
    return f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}; {versions}; load average {facts['load'][0]}."


def _claim_value(claim: dict[str, Any]) -> str:
    return f"{claim['value']:.3g} ({claim['low']:.3g} – {claim['high']:.3g})"


def _target(claim: dict[str, Any]) -> str:
    return f", target {claim['target']}: {_verdict(claim)}" if claim["target"] else ""


def _verdict(claim: dict[str, Any]) -> str:
    return {True: "met", False: "**missed**", None: ""}[claim["met"]]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
