"""Notes what changes in training and was not declared, and says what a resume would lose.

A value is noted if it was there when its loop began, no snapshot holds it, and it differs from what it was after the
first step. What only the first step sets is a cache: nothing is said of it, and what is registered later finds it. But
the first step of a resume must set the same, or it is no cache: a teacher that is copied there, the first loss.
A thing that the first step puts into an object counts as long as it stays the same thing: a tensor that each step adds
to. A name of what is prepared or registered counts when it gets another object, of which no snapshot knows.
Rank 0 looks at steps and at ends of epochs 1, 2, 4, 8, … of a loop, and at every save. What is noted is said
once, with the call that cures each; a snapshot notes the values, and a resume that would lose one stops
(``state-lost``) before it changes anything. Tensors and modules that training does not change must be what they were
when the run began, or the resumed training is another one: random features that no seed fixes.

What the code before an inner loop begins anew in each epoch (``total = 0.0``) is another matter: it is in the frames of
a function that runs now, and most of it only prints. A resume in the middle of an epoch says which of it begins anew.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from types import CodeType
from typing import Any

from rankup.core.choices import ACCEPT, STOP
from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered.cures import compared, cures, listed, root_of
from rankup.runtime.unregistered.marks import SIMPLE, Mark, differ
from rankup.runtime.unregistered.walk import Walk, cannot_be_set, codes_of_script, roots

_CLOCKS = {clock: clock() for clock in (time.time, time.perf_counter, time.monotonic)}
_GONE = Mark("", "not there")
_MOST_CONSTANTS = 2_000  # that a snapshot notes
# Variables that loops of this process have made → a mark of the training. What is left of them, such as the loss of the
# fold before, is no state of the next training: a process that begins with that one does not have them.
_MADE_BY_LOOPS: dict[str, object] = {}
Noted = dict[str, list[Any]]  # path → [digest, text], and [content] behind if it is plain and small


class UnregisteredWatch:
    """Of one run, on rank 0."""

    def __init__(
        self,
        declared: Callable[[], tuple[set[Any], set[int], dict[str, Any]]],
        whole: Callable[[], set[int]],
        forgotten: set[str],
        choice: str,
        *,
        speaks: bool = True,
    ) -> None:
        """``declared``: gives the ids of what snapshots hold, those of optimizers whose state they hold, and what else
        is looked at, by name. ``whole``: ids of what was prepared or registered as a whole. ``forgotten``: names of
        ``run.forget``. ``choice``: of ``--lost``; "" where somebody watches, who is told and goes on. ``speaks``:
        whether this rank says and decides."""
        self.forgotten = forgotten
        self._declared = declared
        self._whole = whole
        self._choice = choice
        self._speaks = speaks
        self._codes: frozenset[CodeType] = frozenset()
        self._training = object()
        self._variables: set[str] = set()  # when the loop began
        self._begun: dict[str, Mark] = {}
        self._constants: dict[str, Mark] = {}  # of these, tensors and modules
        self._left: dict[str, Mark] = {}  # of another training
        self._names: dict[
            str, int
        ] = {}  # of prepared and registered things → their ids, since the loop began
        self._first: dict[str, Mark] | None = None  # after the first step
        self._first_epoch = 0  # the epoch of that step
        # What had a state after the first step and is the same thing still, and not one of each step: path → it.
        self._made: dict[str, Callable[[], Any]] = {}
        self._latest: dict[str, Mark] = {}  # at the last look, if the first step was before it
        self._epoch: dict[str, Mark] = {}  # before the first batch of this epoch; nothing after its last one
        self._interrupted: Mapping[str, list[str]] = {}  # sums when a snapshot was taken
        self._targets: set[str] = set()  # names to which the script's loop gives a batch
        self._changed: set[str] = set()  # paths that have been noted in this training
        self._marks: dict[str, Mark] = {}  # what they had when they were noted
        self._expected: Noted = {}  # what the first step of this process must set, as that of the run's first one
        self._judged_from = 0  # the epoch
        self._said: set[str] = set()
        self._left_out: set[str] = set()
        # Of what a variable holds that is no plain value: the name of its class.
        self._kinds: dict[str, str] = {}
        self._unset: dict[str, str] = {}  # variables that hold what ``run.register`` refuses → what to keep

    # ------------------------------------------------------------------- looks

    def begin(self) -> None:
        """A loop begins; nothing is restored yet."""
        self._codes = codes_of_script()
        self._first, self._latest = None, {}
        now = self._look()
        left = {name for name, training in _MADE_BY_LOOPS.items() if training is not self._training}
        marks = _with_inherited(now)
        self._variables = now.variables.keys() - left
        self._begun = {path: mark for path, mark in marks.items() if root_of(path) not in left}
        self._constants = {
            path: self._begun[path]
            for path, thing in [*now.things.items()][:_MOST_CONSTANTS]
            if path in self._begun and generator_access(thing) is None
        }
        self._left = {path: mark for path, mark in marks.items() if root_of(path) in left}
        self._names = now.whole
        self._changed, self._targets = set(), set()

    def look(self, batch: Any, epoch: int) -> RankupError | None:
        """``batch``: what the loop's body had, in ``epoch``. Called at steps 1, 2, 4, 8, … of a loop. The error, if the
        first step of this resume has set something else than the first step of all."""
        now = self._look()
        self._keep_made(now)
        given = _given(batch)
        self._targets |= {path for path, thing in now.variables.items() if id(thing) in given}
        if self._first is not None:
            self._note(now)
            self._latest = now.by_path()
        else:
            self._first, self._first_epoch = _with_inherited(now), epoch
            self._made = {path: _reference(thing) for path, thing in now.things.items()}
            self._names = {path: one for path, one in self._names.items() if now.whole.get(path) == one}
        return self._set_otherwise() if epoch >= self._judged_from else None

    def end(self) -> None:
        """The loop has come to its end; also one that only gave its last step again, at which nothing was looked at."""
        self._keep_made(self._look())

    def _keep_made(self, now: Walk) -> None:
        marks = now.by_path()
        left = {root_of(path) for path in self._left}
        left -= {root_of(path) for path, mark in self._left.items() if marks.get(path) != mark}
        made = now.variables.keys() - self._variables - left
        _MADE_BY_LOOPS.update(dict.fromkeys(made, self._training))

    def now(self) -> Noted:
        """What a snapshot notes: all that has changed and begins anew in another process."""
        if self._first is None:
            return {path: _as_noted(self._begun[path]) for path in self._changed & self._begun.keys()}
        now = self._look()
        self._note(now)
        marks = now.by_path()
        if self._latest:
            self._latest = marks
        found = {path: marks.get(path, _GONE) for path in self._changed}
        return {
            path: _as_noted(mark)
            for path, mark in found.items()
            if path not in self._begun or self._begun[path].digest != mark.digest
        }

    def _caches(self) -> Noted:
        """What the first step set and none changed since: no reason to stop, but what is registered later finds the
        plain values in a snapshot."""
        return {
            path: _as_noted(mark)
            for path, mark in (self._first or {}).items()
            if path not in self._changed | self._targets and self._is_set_once(path, mark)
        }

    def _is_set_once(self, path: str, mark: Mark) -> bool:
        """By the first step. Of what was not there before, only what has a state, and has kept it: a teacher, and not
        the loss. A tensor of ones that each step makes anew has the size of its batch."""
        before = self._begun.get(path)
        if not mark.plain and path not in self._made:
            return False
        if before is not None:
            return before.digest != mark.digest and not _is_clock(mark)
        latest = self._latest.get(path)
        return not mark.plain and latest is not None and latest.digest == mark.digest

    def state(self) -> dict[str, Any]:
        """What a snapshot holds of the watch."""
        return {
            "noted": self.now(),
            "caches": self._caches(),
            "sums": self._sums(),
            "first_epoch": self._first_epoch,
            "constants": {
                path: _as_noted(mark)
                for path, mark in self._constants.items()
                if path not in self._changed | self._targets
            },
        }

    def resumed(self, then: Mapping[str, Any], epoch: int, step: int) -> None:
        """A run goes on at ``step`` of ``epoch``; ``then``: a state with what ``state`` gave. Where the epoch after
        the very first step's begins, it is not known yet what is set in each epoch: only what stays after that."""
        self._interrupted = then.get("sums", {})
        self._expected = then.get("caches", {})
        self._judged_from = epoch + ((epoch, step) == (then.get("first_epoch", 0) + 1, 0))

    def epoch_begins(self) -> None:
        """The first batch of an epoch is next, or of the rest of one: then say which of its sums begin anew."""
        self._epoch = self._look(codes_of_script()).found
        anew = [
            f"{path} ({was} when saved, {self._epoch[path].text} now)"
            for path, (begun, was) in self._interrupted.items()
            if path in self._epoch and self._epoch[path].digest == begun
        ]
        self._interrupted = {}
        if anew:
            say(
                "warning: an epoch is resumed in its middle, and what the script begins in each epoch begins anew: "
                f"{listed(anew)}. A sum counts the rest of the epoch alone (run.meter keeps sums); what the steps use "
                "(a hidden state, an optimizer) is lost, unless it is made before the loop and registered, with "
                "per_rank=True where each rank has its own"
            )

    def epoch_ends(self) -> None:
        self._epoch = {}

    def _sums(self) -> dict[str, list[str]]:
        """What has changed since this epoch's first batch, in its middle, and is not noted: path → [its digest then,
        its text now]."""
        now = self._look(codes_of_script()).found if self._epoch else {}
        return {
            path: [before.digest, now[path].text]
            for path, before in self._epoch.items()
            if path in now
            and now[path].digest != before.digest
            and path not in self._changed | self._targets
            and not self._is_forgotten(path)
            # The loss of another training is nothing that the script has begun.
            and (path not in self._left or self._left[path].digest != before.digest)
        }

    def _look(self, codes: frozenset[CodeType] | None = None) -> Walk:
        known, held, own = self._declared()
        walk = Walk(known, held, self._whole()).look(roots(codes or self._codes, own))
        self._left_out |= {*walk.left_out}
        self._kinds |= {
            path: type(thing).__name__ for path, thing in walk.objects.items() if path.isidentifier()
        }
        self._unset |= {
            name: "{}.name" if isinstance(thing, Enum) else "0"
            for name, thing in walk.variables.items()
            if cannot_be_set(thing)
        }
        return walk

    def _set_otherwise(self) -> RankupError | None:
        assert self._first is not None
        other = [
            (path, text, mine.text)
            for path, (digest, text, *_) in self._expected.items()
            if (mine := self._first.get(path)) is not None
            and mine.digest != digest
            and self._latest.get(path, mine).digest == mine.digest
            and path not in self._targets
            and not self._is_forgotten(path)
        ]
        self._expected = {}
        if not other or not self._speaks:
            return None
        values = compared(other)
        if self._accepts(values):
            return None
        return RankupError(
            "state-lost",
            f"the first step of this resume has set what the first step of the training had set otherwise: {values}",
            hint="make it before the loop, and run.register it; run.forget(…) for what only prints; --lost accept "
            "(RANKUP_LOST=accept) goes on with the values of now. The snapshot is kept",
            exit_code=1,
        )

    def _note(self, now: Walk) -> None:
        assert self._first is not None
        things = ((path, made, now.things.get(path)) for path, made in self._made.items())
        self._made = {path: made for path, made, thing in things if thing is not None and made() is thing}
        marks = now.by_path()
        for path, mark in marks.items():
            if now.same.get(path) in self._changed | self._targets:
                continue  # another path of a value that is noted, or of the batch
            if (before := self._first.get(path)) is None or not differ(before, mark):
                continue
            # What the first step put into an object counts as long as it is the same thing: each step makes a loss.
            if path in self._begun or (path in self._made and not path.isidentifier()):
                self._add(path, mark)
        for path in self._names:
            # A name of what is prepared or registered has something else: of that snapshots know nothing.
            if path not in now.whole and (path in marks or path in now.objects):
                self._add(path, marks.get(path) or Mark(self._kind(now, path), f"a {self._kind(now, path)}"))

    def _add(self, path: str, mark: Mark) -> None:
        if path not in self._targets and not self._is_forgotten(path) and not _is_clock(mark):
            self._changed.add(path)
            self._marks[path] = mark

    @staticmethod
    def _kind(now: Walk, path: str) -> str:
        return type(now.objects[path]).__name__

    def _is_forgotten(self, path: str) -> bool:
        """By its path, that of what holds it, or its last name."""
        last = re.split(r"\W+", path.rstrip("']"))[-1]
        return last in self.forgotten or any(
            path == name or path.startswith((f"{name}.", f"{name}[")) for name in self.forgotten
        )

    # ------------------------------------------------------------------- words

    def say(self) -> RankupError | None:
        """Say what has been noted and was not said yet. In a job of a queue, where nobody watches, it is the error to
        end with instead, unless ``--lost accept`` was chosen."""
        new = self._by_variable(sorted(self._changed - self._said))
        if not new or not self._speaks:
            return None
        first = not self._said
        self._said |= self._changed
        calls = self._cures(new)
        if self._choice == STOP:
            return RankupError(
                "state-lost",
                f"a resume of this job would lose what changes in training and is in no snapshot: {listed(new)}",
                hint=f'{"; ".join(calls)}; run.forget(…) for what only prints; --lost accept (lost = "accept" in '
                "job.toml) if a resume may begin with their first values. The snapshots stay, and nothing is requeued",
                exit_code=1,
            )
        if self._choice == ACCEPT:
            return None
        what = "these values change" if first else "these values change as well"
        lines = [
            f"warning: {what} in training and are in no snapshot, so that a resume would stop with state-lost: "
            f"{listed(new)}. Before the loop:",
            *(f"  {call}" for call in calls),
            "  run.forget(…) names what only prints",
        ]
        if self._left_out and first:
            lines.append(f"  not watched, since there is too much of it: {listed(sorted(self._left_out))}")
        say("\n".join(lines))
        return None

    def check(
        self, saved: Mapping[str, list[Any]], found_again: Container[str], since: Container[str] = ()
    ) -> RankupError | None:
        """The error for a resume that would lose what a snapshot has noted; None without one. ``found_again``: paths
        that are registered by now, and whose values the snapshot has. ``since``: names that are registered by now."""
        lost, late = [], []
        for path, (digest, text, *_) in saved.items():
            mine = self._begun.get(path)
            if path in found_again or self._is_forgotten(path):
                continue
            if mine is not None and mine.digest == digest:
                self._changed.add(path)  # the script restores it by itself
            elif root_of(path) in since:
                late.append(path)
                lost.append((path, text, "registered since then"))
            elif path in self._names:
                lost.append((path, text, "what is registered"))
            else:
                lost.append((path, text, "not there" if mine is None else mine.text))
        if not lost or not self._speaks:
            return None
        values = compared(lost)
        paths = self._by_variable([path for path, *_ in lost if path not in late])
        if self._accepts(values):
            self._changed |= {*paths}
            self._said |= self._changed
            return None
        hints = []
        if paths:
            hints += [
                f"{'; '.join(self._cures(paths))} (then this snapshot's values are found again, if they are plain)",
                "run.forget(…) for what only prints",
            ]
        if late:
            hints.append(
                f"the next snapshots have {listed(late)}, but this one has not: set what the script can set by itself"
            )
        hints.append("--lost accept (RANKUP_LOST=accept) goes on with the values of now")
        return RankupError(
            "state-lost",
            f"this resume would lose values that no snapshot holds: {values}",
            hint=f"{'; '.join(hints)}. Nothing was changed, and the snapshot is kept",
            exit_code=1,
        )

    def check_constants(self, then: Noted) -> RankupError | None:
        """The error for a resume that would go on with other constants than the run has had; None without one."""
        other = [
            (path, text, mine.text)
            for path, (digest, text) in then.items()
            if (mine := self._constants.get(path)) is not None
            and mine.digest != digest
            and not self._is_forgotten(path)
        ]
        if not other or not self._speaks or self._accepts(values := compared(other)):
            return None
        calls = self._cures(self._by_variable([path for path, *_ in other]))
        return RankupError(
            "state-lost",
            f"this resume would go on with other constants than the run has had: {values}",
            hint="make them alike in each attempt: with a seed, or from a file; a new run may also register them: "
            f"{'; '.join(calls)}; run.forget(…) for what training does not use; --lost accept (RANKUP_LOST=accept) "
            "goes on with the values of now. Nothing was changed, and the snapshot is kept",
            exit_code=1,
        )

    def _accepts(self, values: str) -> bool:
        """Whether a resume may lose these values, which it then says."""
        if self._choice == ACCEPT:
            say(f"lost in this resume, as accepted: {values}")
        return self._choice == ACCEPT

    def _by_variable(self, paths: Sequence[str]) -> list[str]:
        """Without those of a variable that a function's closure holds as well: ``stepped.best`` beside ``best``."""
        return [
            path
            for path in paths
            if self._kinds.get(root_of(path)) != "function" or path.rpartition(".")[2] not in paths
        ]

    def _cures(self, paths: Sequence[str]) -> list[str]:
        named = {path for path in paths if path in self._marks and self._marks[path].named}
        return cures(paths, self._kinds, self._names, self._is_simple, self._unset, named)

    def _is_simple(self, path: str) -> bool:
        """Whether it was a number or the like before, and still is."""
        marks = [mark for mark in (self._begun.get(path), self._marks.get(path)) if mark is not None]
        return bool(marks) and all(
            mark.content is not None and isinstance(mark.content[0], (*SIMPLE, tuple)) for mark in marks
        )


def _is_clock(mark: Mark) -> bool:
    """Whether a value is a reading of a clock, since this process began: it means nothing in another one."""
    value = mark.content[0] if mark.content is not None else None
    return type(value) is float and any(began <= value <= clock() for clock, began in _CLOCKS.items())


def _with_inherited(walk: Walk) -> dict[str, Mark]:
    return {**walk.inherited, **walk.by_path()}


def _reference(thing: Any) -> Callable[[], Any]:
    """Gives the thing as long as the script holds it."""
    try:
        return weakref.ref(thing)
    except TypeError:  # a generator of torch's or NumPy's
        return lambda: thing


def _as_noted(mark: Mark) -> list[Any]:
    return [mark.digest, mark.text, *([mark.content] if mark.content is not None else [])]


def _given(batch: Any) -> set[int]:
    """Ids of a batch, and of what is in it."""
    found = {id(batch)}
    if isinstance(batch, (list, tuple, dict)):
        for each in batch.values() if isinstance(batch, dict) else batch:
            found |= _given(each)
    return found
