"""``rankup verify --page``: the answer as one file that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rankup.scale.report.frame import finding_item, frame
from rankup.scale.report.text import plain
from rankup.verify.conclusion import Proof
from rankup.verify.table import verdict

_ATTEMPTS = ("what", "processes", "attempts", "kills", "steps compared", "verdict")


def verify_page(proof: Proof, command: str, folder: str) -> str:
    """``command``: what was verified; ``folder``: where its traces are."""
    found = "".join(map(finding_item, proof.findings))
    answer = f"<p>{_text(verdict(proof))}</p>" + (f'<ul class="findings">{found}</ul>' if found else "")
    sections = [("answer", "Answer", answer)]
    for part in proof.parts:
        body = f"<p>{_text(part.verdict)}{': ' if part.text else ''}{_text(part.text)}</p>"
        if part.name == "position" and proof.positions:
            heads = (
                "interruption",
                "killed after step",
                "went on after step",
                "steps again",
                "what happened",
            )
            rows = [
                (each.interruption, each.killed_at, each.resumed_at, each.again, each.line)
                for each in proof.positions
            ]
            body += _table("position-table", "Interruptions", heads, rows)
        sections.append((part.name, part.name.capitalize(), body))
    scenarios = [
        (s.what, s.processes, s.attempts, s.kills, s.steps_compared, s.verdict) for s in proof.scenarios
    ]
    body = _table("attempts-table", "Attempts", _ATTEMPTS, scenarios)
    if notes := [*proof.notes, *(f"not crossed: {each}" for each in proof.not_crossed), *proof.lost]:
        body += f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>"
    sections.append(("attempts", "Attempts", body))
    facts = [("Command", plain(command)), ("Traces", plain(folder))]
    return frame(f"rankup verify: {proof.conclusion}", facts, sections, "Made by <code>rankup verify</code>.")


def _table(name: str, title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col" class="text">{escape(each)}</th>' for each in heads)
    lines = (
        "".join(f'<td class="text">{_text("–" if cell is None else cell)}</td>' for cell in row)
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table><caption id="{name}">{title}'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _text(value: object) -> str:
    return escape(plain(value))
