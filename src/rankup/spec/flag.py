"""``Flag``: how a field of ``JobSpec`` is given on a command line. It stands beside the field, in its ``Annotated``."""

from __future__ import annotations

from dataclasses import dataclass

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
