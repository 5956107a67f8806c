"""Drills on a lab of SLURM or PBS: an operator who loses nodes, and where the answers go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def keep(answer: dict[str, Any], name: str) -> None:
    """In benchmarks/results/, without paths of the machine."""
    kept = {key: value for key, value in answer.items() if key not in ("folder", "rows", "code")}
    for finding in [*kept["checked"], *(each for row in kept["failures"] for each in row["changes"])]:
        finding["place"] = finding["place"].rpartition("/")[2]
    (RESULTS / f"drill-{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


@contextmanager
def losing_nodes(
    folder: Path, lose: Callable[[str], None], bring_back: Callable[[str], None]
) -> Iterator[list[str]]:
    """The options of an operator. A file in ``folder`` asks that a node loses its power, another one that it is
    switched on again."""
    asked = folder / "lose", folder / "return"
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for path, act in zip(asked, (lose, bring_back), strict=True):
                if path.exists() and (node := path.read_text().strip()):
                    act(node)
                    path.unlink()

    watching = threading.Thread(target=watch)
    watching.start()
    until_gone = "echo {{node}} >{0}; while [ -e {0} ]; do sleep 0.2; done"
    try:
        yield [
            word
            for option, path in zip(("--lose-node", "--return-node"), asked, strict=True)
            for word in (option, f"bash -c '{until_gone.format(path)}'")
        ]
    finally:
        over.set()
        watching.join()
