"""The snapshot directory of each training of a process, and of each of its loops: found again by order, or by name.

The first training uses the snapshots directory itself, the second one ``training-2`` in it, and one with a name
(``rankup.init(name="fold-2")``) a directory of that name. So a loop over learning rates, or folds, resumes each of its
trainings from its own snapshots.

Each loop of a training is a stage: the first one saves to the training's directory, the second one to ``stage-2`` in
it. The script runs from its first line after a resume, and each loop finds its own end, or its own newest snapshot. So
the code between two loops meets the state that it met the first time.
"""

from __future__ import annotations

import re
from pathlib import Path

from rankup.core.whole_lines import warn
from rankup.errors import RankupError
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
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


class Stages:
    """Of one run: the directory of its training, and below it one for each loop after the first.

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
        self._number = 0  # of the loop that runs, or ran last
        self._trained: list[DataFeed] = []  # over which a loop has begun

    def begin(self, feed: DataFeed) -> None:
        """A loop over ``feed`` begins. RankupError ``loop-per-epoch`` if another one has begun on it."""
        if any(feed is other for other in self._trained):
            raise RankupError(
                "loop-per-epoch",
                f"a second loop over data that a loop has trained on, at epoch {feed.position.epoch + 1}, step "
                f"{feed.position.step}: run.steps and run.epochs count from the beginning of their data",
                hint="for epoch in run.epochs(n): for batch in epoch: …   # what follows the inner loop runs once per "
                "epoch; for another stage (an LR finder, fine-tuning) prepare its data by a call of its own: "
                "_, _, data = run.prepare(model, None, dataset, global_batch=…)",
                exit_code=1,
            )
        self._trained.append(feed)
        self._number += 1

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
            self._path if self._number <= 1 else self._path / f"stage-{self._number}",
            run.world,
            peers=self._peers,
            keep=self._policy.keep,
            asynchronous=self._policy.asynchronous,
        )
        return self._last

    def done(self) -> None:
        """The training is at the end of a loop."""
        assert self._path is not None
        _done.add(self._path)

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
        warn(f"nothing is saved, since {why}{way}")
