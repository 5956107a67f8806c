"""``Flag``: how a field of ``JobSpec`` is given on a command line. It stands beside the field, in its ``Annotated``."""

from __future__ import annotations

from dataclasses import dataclass

from rankup.errors import RankupError

# The groups of a command's help.
WHAT = "What to run"
RESOURCES = "Resources"
LAUNCH = "Launch"
ENVIRONMENT = "Environment"
TIME_LIMIT = "Time limit"
AROUND = "Around the job"


@dataclass(frozen=True)
class Flag:
    """``names`` () means ``--`` and the field's name with dashes (and its ``--no-…``, if the field is yes or no).

    ``of`` are the commands that have it: "submit" stands for render too, "run" for the commands that run here.
    """

    group: str
    help: str
    metavar: str = ""
    names: tuple[str, ...] = ()
    of: tuple[str, ...] = ("submit",)


EVERYWHERE = ("submit", "run")


def process_count(text: str) -> int | None:
    """A number of processes per node; None for ``auto``."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise RankupError(
            "bad-process-count",
            f"--nproc-per-node must be at least 1, or auto; got {text!r}",
            hint="auto starts one process per GPU",
        )
    return int(text)
