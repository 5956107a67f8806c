"""TOML files: read with errors that say where, and written, which the standard library does not do."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.errors import RankupError

# In the standard library from 3.11 on; tomli is the same for 3.10.
_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path, kind: str) -> dict[str, Any]:
    """The tables of ``path``. ``kind`` names it in errors: "job file", "profile"."""
    try:
        tables: dict[str, Any] = _toml.loads(path.read_bytes().decode())
    except OSError as error:
        raise RankupError(
            f"unreadable-{kind.replace(' ', '-')}",
            f"cannot read the {kind} {str(path)!r}: {error.strerror}",
            context=str(path.absolute()),
        ) from error
    except ValueError as error:  # TOML's own, and UTF-8's
        raise RankupError(
            "bad-toml",
            f"the {kind} {str(path)!r} is not valid TOML: {error}",
            context=str(path.absolute()),
            hint='put text in quotes: queue = "gpu"',
        ) from error
    return tables


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables by their names; "" is for the values before the first table.

    A value is text, an integer, a truth or a list of them; None is left out.
    """
    texts = []
    for name, values in tables.items():
        lines = [f"{_key(key)} = {_value(value)}\n" for key, value in values.items() if value is not None]
        texts.append("".join([f"[{name}]\n"] if name else []) + "".join(lines))
    return "\n".join(texts)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped as well.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
