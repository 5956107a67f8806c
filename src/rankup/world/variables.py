"""Reading an environment: whole numbers with clear errors, and a note of where each field came from."""

from __future__ import annotations

from collections.abc import Mapping

from rankup.errors import RankupError


class Variables:
    """An environment and, in ``sources``, what was read from it: field → variable. Empty means unset."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.sources: dict[str, str] = {}

    def first(self, *names: str) -> str | None:
        """The first of ``names`` that is set."""
        return next((name for name in names if self.env.get(name, "").strip()), None)

    def number(self, field: str, *names: str, default: int | None = None) -> int:
        """The whole number in the first of ``names`` that is set; without a default one has to be."""
        name = self.first(*names)
        if name is not None:
            self.sources[field] = name
            return whole_number(self.env, name)
        if default is None:
            raise RankupError(
                "incomplete-environment",
                f"{' or '.join(names)} is not set, although other variables of the same launcher are",
                context=_reading(field),
                hint="pass the launcher's whole environment on to the process",
            )
        return default

    def check_below(self, field: str, value: int, size_field: str, size: int) -> None:
        """A rank is below its size, or the two variables contradict each other."""
        if value >= size:
            raise self._contradiction(field, value, size_field, size, "it has to be below")

    def check_at_most(self, field: str, value: int, size_field: str, size: int) -> None:
        """A part is no larger than the whole, or the two variables contradict each other."""
        if value > size:
            raise self._contradiction(field, value, size_field, size, "it must not be larger")

    def _contradiction(self, field: str, value: int, other: str, other_value: int, why: str) -> RankupError:
        name, other_name = self.sources.get(field, field), self.sources.get(other, other)
        return RankupError(
            "contradictory-environment",
            f"{name} is {value}, but {other_name} is {other_value}: {why}",
            context=_reading(field),
            hint=f"one of them is left over from an earlier command: unset {name.replace(',', '')}"
            f" {other_name.replace(',', '')}, and start the processes anew",
        )


def whole_number(env: Mapping[str, str], name: str) -> int:
    """The variable as a number from 0 on."""
    text = env[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RankupError(
            "not-a-number",
            f"{name} is {env[name]!r}, which is not a whole number from 0 on",
            context="while reading from the environment who this process is",
            hint=f"unset {name}, or let the launcher set it",
        )
    return int(text)


def _reading(field: str) -> str:
    return f"while reading this process's {field.replace('_', ' ')} from the environment"
