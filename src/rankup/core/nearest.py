"""The nearest name that is known, for errors about one that is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """The name among ``known`` that ``name`` was probably meant to be: one that begins so, else one that looks like it;
    "" if none is near."""
    known = list(known)
    if longer := [one for one in known if one.startswith(name) and name.strip("-")]:
        return min(longer, key=len)
    bare = {one.lstrip("-"): one for one in reversed(known)}  # the dashes of two options are no likeness
    return next((bare[close] for close in get_close_matches(name.lstrip("-"), bare, n=1)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'train.py'?"``, to be put after the sentence that names the mistake; "" if none is near."""
    close = nearest(name, known)
    return f"; did you mean {close!r}?" if close else ""
