"""A file → curves and claims. Raises RankupError for what cannot be read, and for a page that compares nothing."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.scale.published import latex
from rankup.scale.published.curves import Curve, curves_of
from rankup.scale.published.documents import Document, read_csv, read_page
from rankup.scale.published.prose import Claim, claims_of


@dataclass(frozen=True)
class Published:
    curves: list[Curve]
    claims: list[Claim]


def read_text(path: Path) -> str:
    """Raises ``unreadable-file``."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RankupError(
            "unreadable-file",
            f"cannot read {path.name}: {reason}",
            context=str(path),
            hint="results.json of rankup scale, a CSV file, or a page in Markdown, reStructuredText, HTML or LaTeX",
        ) from error


def read_published(path: Path, text: str) -> Published:
    """Raises ``nothing-to-check`` if no table or sentence compares numbers of devices."""
    document = _document(path, text)
    published = Published(curves_of(document), claims_of(document))
    if not (published.curves or published.claims):
        tables = len(document.tables)
        raise RankupError(
            "nothing-to-check",
            f"{path.name} compares no numbers of devices (tables: {tables})",
            context=str(path),
            hint="a table needs a column of GPUs, nodes or processes, and one of times, rates or speed-ups",
        )
    return published


def _document(path: Path, text: str) -> Document:
    if path.suffix in (".csv", ".tsv"):
        return read_csv(text, path.name)
    if path.suffix == ".json":
        return read_csv(_rows_as_csv(path, text), path.name)
    if path.suffix == ".tex":
        return read_page(latex.as_page(text), path.name)
    return read_page(text, path.name)


def _rows_as_csv(path: Path, text: str) -> str:
    """A list of flat objects, as many scripts write them."""
    try:
        rows: Any = json.loads(text)
    except ValueError as error:
        raise RankupError("bad-results", f"{path.name} is not JSON: {error}", context=str(path)) from error
    if isinstance(rows, dict):
        rows = next((value for value in rows.values() if isinstance(value, list) and value), [])
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise RankupError(
            "bad-results",
            f"{path.name} is neither a study of rankup nor a list of rows",
            context=str(path),
            hint="rankup scale writes results.json into the study's directory",
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
