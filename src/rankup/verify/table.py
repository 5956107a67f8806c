"""What ``rankup verify`` prints: a line per scenario, then each finding with its evidence and its fix."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from rankup.core.columns import aligned
from rankup.findings.text import TABLE_WIDTH, text_lines
from rankup.verify import conclusion
from rankup.verify.conclusion import NOT_JUDGED, Proof

_HEADINGS = ("what", "processes", "attempts", "kills", "steps compared", "verdict")
_LEFT = ("what", "verdict")


def text(proof: Proof) -> str:
    """The table, what was tried and crossed, the findings, and the verdict."""
    cells = [
        (s.what, s.processes, str(s.attempts), str(s.kills), str(s.steps_compared), s.verdict)
        for s in proof.scenarios
    ]
    lines = aligned([_HEADINGS, *cells], right=[n for n, name in enumerate(_HEADINGS) if name not in _LEFT])
    if proof.positions:
        lines += ["", *_parts(proof)]
    tried = [kill for scenario in proof.scenarios for kill in scenario.tried]
    for label, names in (("tried", tried), ("crossed", proof.crossed), ("not crossed", proof.not_crossed)):
        told = label == "tried" and proof.any_script and proof.positions
        if names and (proof.crossed or tried or proof.same) and not told:
            lines += ["", *_wrapped(f"{label}: {'; '.join(names)}")]
    for finding in proof.findings:
        lines += ["", *text_lines([finding], TABLE_WIDTH)]
    if names := [name for scenario in proof.scenarios for name in scenario.not_compared]:
        lines += [
            "",
            *_wrapped(
                f"note: not compared, because uninterrupted runs differ in it, as a clock does: {', '.join(names)}"
            ),
        ]
    for note in proof.notes:
        lines += ["", *_wrapped(f"note: {note}")]
    for said in proof.lost:
        lines += ["", *_wrapped(f"printed by an attempt: {said}")]
    return "\n".join([*lines, "", verdict(proof)])


def as_dict(proof: Proof, folder: str) -> dict[str, Any]:
    rows = [
        {
            **{key: value for key, value in vars(scenario).items() if key not in ("finding", "distance")},
            "finding": scenario.finding.as_dict() if scenario.finding else None,
            "distance": vars(scenario.distance) if scenario.distance else None,
        }
        for scenario in proof.scenarios
    ]
    return {
        "conclusion": proof.conclusion,
        "proved": proof.proved,
        **conclusion.as_dict(proof),
        "findings": [finding.as_dict() for finding in proof.findings],
        "same": proof.same,
        "crossed": list(proof.crossed),
        "not_crossed": list(proof.not_crossed),
        "lost": list(proof.lost),
        "notes": list(proof.notes),
        "epoch_steps": proof.epoch_steps,
        "last_step": proof.last_step,
        "scenarios": rows,
        "folder": folder,
    }


def _wrapped(line: str) -> list[str]:
    return wrap(line, TABLE_WIDTH, subsequent_indent="  ", break_long_words=False)


def _parts(proof: Proof) -> list[str]:
    lines = []
    for part in proof.parts:
        words = f"{part.verdict}" + (f": {part.text}" if part.text else "")
        lines += wrap(
            f"{part.name:<10}{words}", TABLE_WIDTH, subsequent_indent=" " * 10, break_long_words=False
        )
        if part.name == "position":
            for position in proof.positions:
                lines += wrap(position.line, TABLE_WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def verdict(proof: Proof) -> str:
    """The last word."""
    scenarios = proof.scenarios
    if proof.conclusion == "not deterministic":
        return "not deterministic, not proved: two uninterrupted runs differ"
    if proof.conclusion == NOT_JUDGED:
        return "not judged: no attempt went on from a checkpoint"
    if proof.conclusion == "equal within rounding":
        return "equal within rounding: decide whether that is enough"
    if not proof.same:
        how = "interrupted"
        if all(s.same for s in scenarios if s.distance is None):
            how = "continued or repeated on other numbers of processes"
        return f"differs: this training is not the same when it is {how}"
    if unjudged := _not_judged(proof):
        if proof.not_crossed or proof.lost:
            return f"not proved: {unjudged}; {_doubt(proof)}"
        return f"{proof.conclusion}: {unjudged}"
    if proof.not_crossed:
        steps = max(s.steps_compared for s in scenarios)
        return f"no difference found in {steps} steps; not proved, {_doubt(proof)}"
    if proof.lost:
        return f"no difference found; not proved, {_doubt(proof)}"
    if proof.last_step is not None:
        return f"proved to step {proof.last_step}: the same model, bit for bit; without --shorten the whole training"
    if proof.epoch_steps is not None:
        return (
            f"proved in loops of two epochs of {proof.epoch_steps} steps: the same model, bit for bit; without --quick "
            "the whole training is proved"
        )
    return (
        "proved: the same model, bit for bit"
        if all(s.verdict == "identical" for s in scenarios)
        else "proved: the same model, except for rounding on other numbers of processes"
    )


def _doubt(proof: Proof) -> str:
    return "see what was not crossed" if proof.not_crossed else "because an attempt lost state"


def _not_judged(proof: Proof) -> str:
    """What differs on other numbers of processes, and may be rounding; "" without it."""
    apart = {s.processes: s.distance.largest for s in proof.unjudged_worlds if s.distance is not None}
    if not apart:
        return ""
    return (
        f"on {' and '.join(apart)} processes the weights differ by up to {max(apart.values()):.1e}, which this "
        "precision cannot judge"
    )
