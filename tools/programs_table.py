"""The table of tests/programs in docs/explanation/exactness.md, from what the campaign wrote.

    python tools/programs_table.py          writes it

``pytest -m campaign tests/programs`` writes benchmarks/results/programs.json; a test checks that the table is that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "programs.json"
PAGE = ROOT / "docs" / "explanation" / "exactness.md"
BEGIN, END = "<!-- tools/programs_table.py: begin -->", "<!-- tools/programs_table.py: end -->"
COLUMNS = {
    "none": "1 process",
    "ddp": "ddp, 2 to 4",
    "fsdp": "fsdp, 2 to 4",
    "any-world": "any-world, 1 to 4",
}
WORDS = {"equal": "equal", "own": "as the number of processes", "raised": "an error of torch"}


def cell(strategy: str, tried: dict[str, Any] | None) -> str:
    """What stands in the table for one strategy."""
    if tried is None:
        return "–"
    result = str(tried["result"])
    if strategy == "any-world" and result in ("equal", "own"):
        return "equal, same bits" if result == "equal" else "same bits"
    return WORDS.get(result, f"`{result}`")


def render(results: dict[str, Any]) -> str:
    """The section between the markers."""
    rows = results["programs"]
    cells = [tried for row in rows.values() for tried in row["cells"].values() if tried is not None]
    trainings, killed, moved = (
        sum(tried[what] for tried in cells) for what in ("trainings", "killed", "moved")
    )
    lines = [
        f"{len(rows)} programs, {trainings} trainings on torch {results['torch']}; {killed} were also killed (SIGKILL)",
        f"and resumed, and {moved} were resumed on another number of processes.",
        "",
        f"| program | {' | '.join(COLUMNS.values())} | resume |",
        f"|---|{'---|' * len(COLUMNS)}---|",
    ]
    for name, row in rows.items():
        values = (cell(strategy, row["cells"].get(strategy)) for strategy in COLUMNS)
        lines.append(f"| `{name}`: {row['summary']} | {' | '.join(values)} | {row['resume'] or '–'} |")
    return "\n".join(lines)


def replaced(page: str, section: str) -> str:
    """``page`` with ``section`` between the markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(), render(json.loads(RESULTS.read_text()))))


if __name__ == "__main__":
    main()
