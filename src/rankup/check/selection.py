"""Which rules are asked: ``--select``, ``--ignore``, and the file that holds a project's choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.check.registry import all_rules, nearest_rule
from rankup.check.rule import Rule
from rankup.core.nearest import did_you_mean
from rankup.core.toml_file import read_toml
from rankup.errors import RankupError

FILE = "rankup.toml"


@dataclass(frozen=True)
class Selection:
    """A project's choice. A code may be cut short: ``RK3`` is every rule of data."""

    select: tuple[str, ...] = ()  # empty: all
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # patterns of files and folders
    site: str = ""
    strict: bool = False

    def holds(self, rule: Rule[Any]) -> bool:
        return (not self.select or _named(rule, self.select)) and not _named(rule, self.ignore)


def _named(rule: Rule[Any], words: Iterable[str]) -> bool:
    return any(rule.name == word or rule.code.startswith(word.upper()) for word in words)


def check_codes(words: Iterable[str], *, where: str) -> tuple[str, ...]:
    """``words`` if each is a rule's code, the beginning of one, or a rule's name. Raises ``unknown-rule``."""
    words = tuple(part for word in words for part in word.replace(",", " ").split())
    for word in words:
        if not any(_named(rule, (word,)) for rule in all_rules()):
            raise RankupError(
                "unknown-rule",
                f"unknown rule {word!r}{nearest_rule(word)}",
                context=where,
                hint="rankup rules lists all rules",
            )
    return words


def read_selection(start: Path) -> Selection:
    """The choice of the project that holds ``start``: ``[check]`` of rankup.toml, or ``[tool.rankup.check]`` of
    pyproject.toml, the nearest above it. Raises ``RankupError`` for a key or a value that does not exist."""
    folder = start.absolute() if start.is_dir() else start.absolute().parent
    for place in (folder, *folder.parents):
        own, project = place / FILE, place / "pyproject.toml"
        if own.is_file():
            return _selection(read_toml(own, "configuration").get("check", {}), own, "check")
        if project.is_file():
            tool = read_toml(project, "configuration").get("tool", {})
            if isinstance(tool, dict) and "check" in tool.get("rankup", {}):
                return _selection(tool["rankup"]["check"], project, "tool.rankup.check")
    return Selection()


def _selection(given: Any, path: Path, table: str) -> Selection:
    where = f"{path} [{table}]"
    types: dict[str, type[Any]] = {
        "select": list,
        "ignore": list,
        "exclude": list,
        "site": str,
        "strict": bool,
    }
    if not isinstance(given, dict):
        raise RankupError("bad-configuration", f"{table!r} must be a table", context=where)
    for key, value in given.items():
        if key not in types:
            raise RankupError(
                "bad-configuration",
                f"unknown setting {key!r}{did_you_mean(key, types)}",
                context=where,
                hint=f"one of: {', '.join(types)}",
            )
        if not isinstance(value, types[key]) or (
            isinstance(value, list) and not all(isinstance(one, str) for one in value)
        ):
            needs = {list: 'a list of texts: ["RK115"]', str: "a text", bool: "true or false"}[types[key]]
            raise RankupError("bad-configuration", f"{key} must be {needs}, got {value!r}", context=where)
    return Selection(
        select=check_codes(given.get("select", ()), where=where),
        ignore=check_codes(given.get("ignore", ()), where=where),
        exclude=tuple(given.get("exclude", ())),
        site=given.get("site", ""),
        strict=given.get("strict", False),
    )
