"""``Scenario``: everything that the stand-ins need to know, as a file in the scratch directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankup.rehearse.allocation import Allocation


@dataclass(frozen=True)
class Scenario:
    """The pretended cluster. ``scratch`` holds the stand-ins, the log and the state of steps."""

    scratch: Path
    folder: Path  # where the job is submitted: the job script's folder, as the script sees it
    allocation: Allocation = field(default_factory=Allocation)
    slurm_version: tuple[int, int] = (23, 11)
    mpi: str = ""  # who answers to mpirun and mpiexec: openmpi, hydra, pals; "": whose options they get
    time: int = 3600  # of the job, in seconds
    started: float = 0.0
    in_tmp: Sequence[str] = ()  # the paths that this machine has in /tmp, before the job
    for_real: bool = False
    queue: str = ""  # a folder: a scheduler looks there for commands that change the queue; "": none does
    restarts: int = 0  # how often the job was requeued
    variables: Mapping[str, str] = field(default_factory=dict)  # given to the job when it was submitted
    confined: bool = True  # in a mount namespace: the root is a copy
    python: str = "python3"  # that runs the stand-ins
    source: str = ""  # the folder of the package rankup
    user: str = "user"
    home: str = "/home/user"

    @property
    def bin(self) -> Path:
        return self.scratch / "bin"

    @property
    def disks(self) -> Path:
        """What the nodes but the first have written to their own disks; in memory."""
        return self.scratch / "disks"

    @property
    def log(self) -> Path:
        return self.scratch / "log.jsonl"

    def save(self) -> None:
        values = {**asdict(self), "scratch": str(self.scratch), "folder": str(self.folder)}
        values["allocation"] = self.allocation.as_dict()
        (self.scratch / "scenario.json").write_text(json.dumps(values))

    @classmethod
    def load(cls, scratch: Path) -> Scenario:
        values: dict[str, Any] = json.loads((scratch / "scenario.json").read_text())
        values["allocation"] = Allocation.from_dict(values["allocation"])
        values["slurm_version"] = tuple(values["slurm_version"])
        return cls(**{**values, "scratch": Path(values["scratch"]), "folder": Path(values["folder"])})
