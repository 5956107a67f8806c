"""docs/reference/rules/ is what the rules say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import rule_pages  # noqa: E402

from generated import check_generated  # noqa: E402


def test_the_pages_are_what_the_rules_say():
    kept, made = {path.name: path.read_text() for path in rule_pages.FOLDER.iterdir()}, rule_pages.pages()
    for name in sorted({*kept, *made}):
        path = rule_pages.FOLDER.relative_to(ROOT) / name
        check_generated(kept.get(name, ""), made.get(name, ""), path, "python tools/rule_pages.py")
