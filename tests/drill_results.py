"""What a drill of the campaign answered goes to benchmarks/results/, without paths of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def keep(answer: dict[str, Any], name: str) -> None:
    kept = {key: value for key, value in answer.items() if key not in ("folder", "rows", "code")}
    for finding in [*kept["checked"], *(each for row in kept["failures"] for each in row["changes"])]:
        finding["place"] = finding["place"].rpartition("/")[2]
    (RESULTS / f"drill-{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
