"""The pages of the site about codes: all that rankup says under each, as `rankup explain CODE` prints it.

They are written when the site is built, and are not in docs/: a message that changes has no second copy to change.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rankup.explain.codes import all_said, page_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "reference"
SIGNATURES = "explain/signatures/"

CODES = """\
# All codes

The code in brackets after a message of rankup, and all that rankup says under it, as `rankup explain CODE` prints it.
Text in `<>`, and `…`, is filled in when it is said; `|` stands between texts of which one is said. Codes of
`rankup check` have [pages of their own](rules/README.md), failures in logs are [another page](failures.md).

"""
FAILURES = """\
# Failures in logs

What `rankup explain` knows by the words of torch, NCCL, MPI, schedulers and the system: [a job
failed](../how-to/a-job-failed.md). `rankup explain CODE` prints one of them.

"""


_all_said = functools.cache(all_said)


def codes_page() -> str:
    return _page(CODES, lambda source: not source.startswith(SIGNATURES))


def failures_page() -> str:
    return _page(FAILURES, lambda source: source.startswith(SIGNATURES))


def _page(head: str, wanted: Callable[[str], bool]) -> str:
    """A heading for each code, what is said under it, and the pages that speak of it."""
    texts = {path: path.read_text() for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "adr"}
    blocks = [head]
    for code, said in _all_said().items():
        if any(wanted(one.source) for one in said):
            named = [path for path, text in texts.items() if f"`{code}`" in text]
            links = ", ".join(f"[{path.stem}]({os.path.relpath(path, FOLDER)})" for path in named)
            blocks.append(f"## `{code}`\n\n```text\n{page_of(code, said)}\n```\n\n")
            blocks += [f"More: {links}.\n\n"] if links else []
    return "".join(blocks)


#: Path below docs/ → its text.
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/codes.md": codes_page,
    "reference/failures.md": failures_page,
}
