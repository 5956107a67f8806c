"""The snapshot directory of each training of a process: found again by order, or by name, when the script is restarted.

The first training uses the snapshots directory itself, the second one ``training-2`` in it, and one with a name
(``rankup.init(name="fold-2")``) a directory of that name. So a loop over learning rates, or folds, resumes each of its
trainings from its own snapshots.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from rankup.errors import RankupError
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.context import RunContext
from rankup.snapshots.peers import Peers
from rankup.snapshots.saver import Saver

# Of this process: directory → how many trainings without a name have begun below it.
_unnamed: dict[Path, int] = {}
# Of this process: directories of trainings that were trained to their end.
_done: set[Path] = set()


def check_name(name: str) -> None:
    """RankupError if ``name`` cannot be a directory besides ``step-N``."""
    reserved = re.fullmatch(r"(step|stage|training)-.*|latest", name)
    if name and (reserved or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)):
        raise RankupError(
            "bad-training-name",
            f"{name!r} cannot name a training",
            hint="letters, digits, '.', '_' and '-', at most 100, beginning with a letter or a digit; not step-…, "
            "stage-…, training-… or latest",
        )


def training_folder(base: Path, name: str) -> Path:
    """The directory of a training that begins now below ``base``. Call it once per training, on every rank alike."""
    base = base.absolute()
    if not name:
        number = _unnamed[base] = _unnamed.get(base, 0) + 1
        return base if number == 1 else base / f"training-{number}"
    folder = base / name
    if folder in _done:
        raise RankupError(
            "training-name-taken",
            f"a training named {name!r} has already been trained to its end in this process",
            context=str(folder),
            hint="give each training its own name, e.g. name=f'fold-{k}'; or none: then their order distinguishes them",
        )
    return folder


def training_done(folder: Path) -> None:
    """The training in ``folder`` has been trained to its end."""
    _done.add(folder)


class TrainingFolder:
    """Of one run: the directory of its training, and below it one for each stage after the first.

    ``wanted``: whether the script asks for snapshots, so that it is warned if there can be none.
    """

    def __init__(self, run: RunContext, policy: Snapshots, *, wanted: bool) -> None:
        self.wanted = wanted
        self._run = run
        self._policy = policy
        self._warned = False
        self._peers: Peers | None = None
        self._last: Saver | None = None
        self._path: Path | None = None  # once the training has begun to save
        self._stage = 0
        self._stage_prepared = -1  # how much was prepared when the stage began

    def begin_stage(self) -> bool:
        """Whether a loop that begins now is a new stage: more has been prepared than for the stage before."""
        if len(self._run.prepared) <= self._stage_prepared:
            return False
        self._stage, self._stage_prepared = self._stage + 1, len(self._run.prepared)
        return True

    @property
    def begun(self) -> bool:
        """Whether the training has a directory by now."""
        return self._path is not None

    def open(self) -> Saver | None:
        """A saver for the directory of this stage; None if there is no directory."""
        run = self._run
        wanted = self._policy.directory
        base = Path(wanted) if wanted is not None else None
        if base is None and run.directory is not None:
            base = run.directory.path / "snapshots"
        if base is None or not run.strategy.snapshots:
            self._warn_nowhere(base)
            return None
        if self._path is None:
            self._path = training_folder(base, run.name)
            if self._path.name.startswith("training-"):
                run.print(
                    f"{self._path.name} of this process: its snapshots are in {self._path} "
                    "(rankup.init(name=…) names it)"
                )
        if self._peers is None:
            self._peers = Peers(run.world)
        if self._last is not None:
            # A loop that was left by a break did not wait for its save, which talks to the same peers.
            self._last.wait()
        self._last = Saver(
            self._path if self._stage == 1 else self._path / f"stage-{self._stage}",
            run.world,
            peers=self._peers,
            keep=self._policy.keep,
            asynchronous=self._policy.asynchronous,
        )
        return self._last

    def done(self) -> None:
        """The training is at its end."""
        assert self._path is not None
        training_done(self._path)

    def _warn_nowhere(self, base: Path | None) -> None:
        """Warn once that nothing is saved, if the script asks for snapshots or calls ``run.save``."""
        if self._warned or not self.wanted or not self._run.world.is_main:
            return
        self._warned = True
        why = (
            "there is no run directory" if base is None else f"strategy {self._run.strategy.name} saves none"
        )
        way = (
            ": start the script by `rankup run`, or use rankup.Snapshots(directory=…)" if base is None else ""
        )
        warnings.warn(f"nothing is saved, since {why}{way}", stacklevel=2)
