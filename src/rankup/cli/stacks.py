"""Stacks of the ranks of a run, for ``rankup top``: asked for through the run directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rankup.cli.output.console import shown
from rankup.errors import RankupError
from rankup.monitor.frame import Frame
from rankup.monitor.stacks import answer, answers, request

_SAMPLED = 30.0  # seconds: a node whose last sample is older has no sampler
WAIT = 60.0


class Stacks:
    """One request, and the answers that have come."""

    def __init__(self, folder: Path, frame: Frame) -> None:
        """Raises RankupError if nobody can be asked."""
        self._folder = folder
        hosts = {row.host for row in frame.ranks if row.rank is not None}
        if not hosts:
            raise RankupError(
                "no-ranks-known",
                "the ranks of the run have not told their processes",
                context=str(folder),
                hint="scripts that loop over run.steps or run.epochs do",
                exit_code=1,
            )
        sampled = {node.host for node in frame.nodes if node.silent_s < _SAMPLED}
        here = os.uname().nodename
        try:
            self._since = request(folder)
            if here in hosts - sampled:  # no sampler there, and we are there
                answer(folder, here)
        except OSError as error:
            raise RankupError(
                "unwritable-directory",
                f"cannot ask for stacks: {error.strerror}",
                context=str(folder),
                hint="only the owner of a run may do this",
                exit_code=1,
            ) from error
        self.silent = sorted(hosts - sampled - {here})
        self._wanted = len(hosts & sampled) + (here in hosts - sampled)

    def answered(self) -> dict[str, str]:
        return answers(self._folder, self._since)

    @property
    def complete(self) -> bool:
        return len(self.answered()) >= self._wanted

    def message(self) -> str:
        """For the last line of the live view."""
        done = self.answered()
        where = shown(self._folder / "logs")
        if not done:
            return "py-spy: asked the samplers; they answer within some seconds"
        missing = f", none of {', '.join(self.silent)}, which has no sampler" if self.silent else ""
        return f"py-spy: stacks of {len(done)} node{'s' * (len(done) > 1)} in {where}/stacks-*.txt{missing}"

    def wait(self, seconds: float = WAIT) -> dict[str, str]:
        """Until all nodes that have a sampler have answered, or for so long."""
        deadline = time.monotonic() + seconds
        while not self.complete and time.monotonic() < deadline:
            time.sleep(0.2)
        return self.answered()
