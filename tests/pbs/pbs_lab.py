"""The PBS of ``rankup drill --here`` for the tests marked ``pbs``, with a user and what tests ask it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab_user import ALICE, WithAlice
from rankup.core.shell import Completed
from rankup.drill.lab import pbs
from rankup.drill.lab.lab import HEAD, until

# A job stays in PBS's state E while its owner's home has the file ``ending``. A site's own hooks take seconds there.
_ENDING = """\
import os, time
while os.path.exists({!r}):
    time.sleep(0.1)
"""

__all__ = ["ALICE", "HEAD", "PbsLab", "why_not"]

why_not = pbs.PbsLab.why_not


class PbsLab(WithAlice, pbs.PbsLab):
    """Jobs are alice's, in her home. The queue ``short`` has a time limit of a minute."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(nodes, cpus=4, gpus=2, queues=["short"])

    def ask(
        self,
        host: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
        *,
        text: str = "",
    ) -> Completed:
        """As alice."""
        return self.run_as(host, argv, env, timeout, alice=True, text=text)

    def write(self, name: str, text: str) -> Path:
        """A file of alice's."""
        path = self.alice / name
        path.write_text(text)
        os.chown(path, ALICE, ALICE)
        return path

    def qstat(self, job: str) -> dict[str, Any]:
        """The attributes of a job that is there or was; {} for one that PBS does not know."""
        done = self.ask(HEAD, ["qstat", "-x", "-f", "-F", "json", job])
        jobs = json.loads(done.out).get("Jobs", {}) if done.out.strip() else {}
        return dict(next(iter(jobs.values()), {}))

    def until(self, condition: Callable[[], object], timeout: float = 60) -> Any:
        """Wait until ``condition`` is true, and return what it gave; what the queue says otherwise."""
        return until(condition, timeout, lambda: self.ask(HEAD, ["qstat", "-x", "-f"]).out)

    @contextmanager
    def jobs_do_not_end(self) -> Iterator[None]:
        """Jobs that end meanwhile stay in state E."""
        ending = self.write("ending", "")
        script = self.write("ending.py", _ENDING.format(str(ending)))
        said = self.manage(
            "create hook ending\nset hook ending event = execjob_end\nset hook ending alarm = 600\n"
            f"import hook ending application/x-python default {script}\n"
        )
        assert said == ""
        hooks = [self._state / f"pbs-{node}" / "mom_priv" / "hooks" / "ending.PY" for node in self.nodes]
        self.until(lambda: all(hook.exists() for hook in hooks))
        try:
            yield
        finally:
            ending.unlink()

    def _set_up(self) -> None:
        super()._set_up()
        self.manage("set queue short resources_default.walltime = 00:01:00\n")
