"""The numbers, times and sizes that Slurm takes, and what it says of others."""

from __future__ import annotations

import re

from rankup.launch_grammar.options import Option

_WHOLE = re.compile(r"\+?(\d+)")
_NODES = re.compile(r"\+?(\d+)[km]?(?:-(\d+)[km]?)?", re.I)
#: What else has one form; Slurm says the same of all other values.
_FORMS = {
    "TIME": re.compile(r"-1|(\d+-)?\d+(:\d+){0,2}|\d+-|infinite|unlimited", re.I),
    "MEMORY": re.compile(r"\+?\d+([kmgt]b?)?", re.I),
}


def refusal(option: Option, value: str) -> str:
    """What Slurm says of a value that it does not take; "" if it takes it."""
    name = option.meaning
    if option.kind in ("COUNT", "NUMBER"):
        match = _WHOLE.fullmatch(value)
        least = 1 if option.kind == "COUNT" else 0
        if match is None or int(match[1]) < least:
            return f'Invalid numeric value "{value}" for --{name}.'
    if option.kind == "NODES":
        match = _NODES.fullmatch(value)
        if match is None:
            return f'"{value}" is not a valid node count'
    if option.kind in _FORMS and not _FORMS[option.kind].fullmatch(value):
        return f"Invalid --{name} specification"
    return ""
