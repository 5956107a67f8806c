"""What other programs write, without what a terminal obeys."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """What another program wrote, without what a terminal obeys: colours, titles, bells."""
    return _CONTROL.sub("", _SEQUENCE.sub("", text) if "\x1b" in text else text)
