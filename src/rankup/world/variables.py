"""Reads variables of an environment: whole numbers with clear errors, and the origin of each field."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.errors import RankupError


class Variables:
    """An environment, and in ``sources`` the origin of each field: field → variable. Empty variables count as unset."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.sources: dict[str, str] = {}

    def first(self, *names: str) -> str | None:
        """The first of ``names`` that is set."""
        return next((name for name in names if self.env.get(name, "").strip()), None)

    def number(self, field: str, *names: str, default: int | None = None) -> int:
        """The whole number in the first of ``names`` that is set. Without a default one of them must be set."""
        name = self.first(*names)
        if name is not None:
            self.sources[field] = name
            return whole_number(self.env, name)
        if default is None:
            raise RankupError(
                "incomplete-environment",
                f"{' or '.join(names)} is not set, although other variables of the same launcher are",
                context=_reading(field),
                hint="pass all variables of the launcher to the process",
            )
        return default

    def check_below(self, field: str, value: int, size_field: str, size: int) -> None:
        """Raise an error if a rank is not below its size: the two variables contradict each other."""
        if value >= size:
            raise self._contradiction(field, value, size_field, size, "the first must be below the second")

    def check_at_most(self, field: str, value: int, size_field: str, size: int) -> None:
        """Raise an error if a part is larger than the whole: the two variables contradict each other."""
        if value > size:
            raise self._contradiction(field, value, size_field, size, "the first must not be larger")

    def _contradiction(self, field: str, value: int, other: str, other_value: int, why: str) -> RankupError:
        name, other_name = self.sources.get(field, field), self.sources.get(other, other)
        return RankupError(
            "contradictory-environment",
            f"{name} is {value}, but {other_name} is {other_value}: {why}",
            context=_reading(field),
            hint=f"one of them is left over from an earlier command: unset {name.replace(',', '')}"
            f" {other_name.replace(',', '')}, and start the processes again",
        )


def whole_number(env: Mapping[str, str], name: str) -> int:
    """The variable as a number from 0 on."""
    text = env[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RankupError(
            "not-a-number",
            f"{name} is {env[name]!r}, but must be a whole number, at least 0",
            context="while reading rank and sizes of this process from the environment",
            hint=f"unset {name}, or let the launcher set it",
        )
    return int(text)


def _reading(field: str) -> str:
    return f"while reading this process's {field.replace('_', ' ')} from the environment"
