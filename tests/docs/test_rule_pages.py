"""docs/reference/rules.md is what the rules say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import rule_pages  # noqa: E402


def test_the_page_is_what_the_rules_say():
    """If it is not: ``python tools/rule_pages.py``."""
    assert rule_pages.PAGE.read_text() == rule_pages.page()
