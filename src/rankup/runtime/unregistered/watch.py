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

What an earlier loop has left in a variable that it has made (``loss``) is noted, and not said: a process that begins
with this loop does not have it, and Python says so if it is read. It is lost only where the script makes it anew.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from types import CodeType
from typing import Any

from rankup.errors import RankupError
from rankup.runtime.seed import generator_access
from rankup.runtime.unregistered import cures
from rankup.runtime.unregistered.cures import root_of
from rankup.runtime.unregistered.marks import SIMPLE, Mark, differ
from rankup.runtime.unregistered.sums import Sums
from rankup.runtime.unregistered.walk import Walk, cannot_be_set, codes_of_script, roots

_CLOCKS = {clock: clock() for clock in (time.time, time.perf_counter, time.monotonic)}
_GONE = Mark("", "not there")
_MOST_CONSTANTS = 2_000  # that a snapshot notes
# Variables that loops of this process have made → a mark of the training, and what they had at the end of their loop.
_MADE_BY_LOOPS: dict[str, tuple[object, dict[str, str]]] = {}
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
        self._training = object()
        self._codes: frozenset[CodeType] = frozenset()
        self._variables: set[str] = set()  # when the loop began
        self._begun: dict[str, Mark] = {}
        self._constants: dict[str, Mark] = {}  # of these, tensors and modules
        self._left: set[str] = set()  # variables with what an earlier loop has left there
        # Of prepared and registered things → their ids, since the loop began.
        self._names: dict[str, int] = {}
        self._first: dict[str, Mark] | None = None  # after the first step
        self._first_epoch = 0  # the epoch of that step
        # What had a state after the first step and is the same thing still, and not one of each step: path → it.
        self._made: dict[str, Callable[[], Any]] = {}
        self._latest: dict[str, Mark] = {}  # at the last look, if the first step was before it
        self.sums = Sums()
        self._targets: set[str] = set()  # names to which the script's loop gives a batch
        self._changed: set[str] = set()  # paths that have been noted in this training
        self._marks: dict[str, Mark] = {}  # what they had when they were noted
        self._expected: Noted = {}  # what the first step of this process must set, as that of the run's first one
        self._judged_from = 0  # the epoch
        self._said: set[str] = set()
        self._left_out: set[str] = set()
        # Of what a variable holds that is no plain value: the name of its class.
        self._kinds: dict[str, str] = {}
        self._unset: dict[str, str] = {}  # paths of what ``run.register`` refuses → what to keep of it

    # ------------------------------------------------------------------- looks

    def begin(self) -> None:
        """A loop begins; nothing is restored yet."""
        self._codes = codes_of_script()
        self._first, self._latest = None, {}
        now = self._look()
        self._begun = _with_inherited(now)
        contents = _contents(self._begun)
        self._left = {
            name
            for name, (training, content) in _MADE_BY_LOOPS.items()
            if name in now.variables and (training is not self._training or content == contents.get(name, {}))
        }
        self._variables = {*now.variables}
        self._constants = {
            path: self._begun[path]
            for path, thing in [*now.things.items()][:_MOST_CONSTANTS]
            if path in self._begun and root_of(path) not in self._left and generator_access(thing) is None
        }
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
        begun, contents = _contents(self._begun), _contents(_with_inherited(now))
        left = {name for name in self._left if begun.get(name, {}) == contents.get(name, {})}
        made = now.variables.keys() - (self._variables - self._left) - left
        _MADE_BY_LOOPS.update({name: (self._training, contents.get(name, {})) for name in made})

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
        before = None if root_of(path) in self._left else self._begun.get(path)
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
            "left": sorted(self._left),
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
        self.sums.interrupted = then.get("sums", {})
        self._expected = then.get("caches", {})
        self._judged_from = epoch + ((epoch, step) == (then.get("first_epoch", 0) + 1, 0))

    def epoch_begins(self) -> None:
        """The first batch of an epoch is next, or of the rest of one: then say which of its sums begin anew."""
        self.sums.begin(self._look(codes_of_script()).found)

    def _sums(self) -> dict[str, list[str]]:
        """Those of this epoch that are not noted."""
        if not self.sums.epoch:
            return {}
        found = self.sums.state(self._look(codes_of_script()).found)
        apart = {path for path in self._changed if root_of(path) not in self._left} | self._targets
        return {
            path: told
            for path, told in found.items()
            if not (path in apart or self._is_forgotten(path))
            # The loss of an earlier loop is nothing that the script has begun.
            and not (root_of(path) in self._left and self._begun[path].digest == told[0])
        }

    def _look(self, codes: frozenset[CodeType] | None = None) -> Walk:
        known, held, own = self._declared()
        walk = Walk(known, held, self._whole()).look(roots(codes or self._codes, own))
        self._left_out |= {*walk.left_out}
        self._kinds |= {
            path: type(thing).__name__ for path, thing in walk.objects.items() if path.isidentifier()
        }
        self._unset |= {
            path: "{}.name" if isinstance(thing, Enum) else "0"
            for path, thing in (*walk.objects.items(), *walk.variables.items())
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
        return cures.set_otherwise(other, self._choice) if other and self._speaks else None

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
        unsaid = sorted(self._changed - self._said)
        new = self._by_variable([path for path in unsaid if root_of(path) not in self._left])
        if not new or not self._speaks:
            return None
        left_out = [] if self._said else sorted(self._left_out)
        again, self._said = bool(self._said), self._said | self._changed
        return cures.changed(new, self._cures(new), left_out, self._choice, again=again)

    def check(
        self,
        saved: Noted,
        left: Container[str],
        found_again: Container[str],
        since: Container[str],
    ) -> RankupError | None:
        """The error for a resume that would lose what a snapshot has noted (``saved``); None without one. ``left``:
        variables that an earlier loop had made. ``found_again``: paths that are registered by now, and whose values the
        snapshot has. ``since``: names that are registered by now."""
        lost, late = [], []
        for path, (digest, text, *_) in saved.items():
            mine = self._begun.get(path)
            left_here = mine is None or root_of(path) in self._left
            if path in found_again or self._is_forgotten(path) or (root_of(path) in left and left_here):
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
        paths = self._by_variable([path for path, *_ in lost if path not in late])
        error = cures.lost(lost, self._cures(paths), late, self._choice)
        if error is None:
            self._changed |= {*paths}
            self._said |= self._changed
        return error

    def check_constants(self, then: Noted) -> RankupError | None:
        """The error for a resume that would go on with other constants than the run has had; None without one."""
        other = [
            (path, text, mine.text)
            for path, (digest, text) in then.items()
            if (mine := self._constants.get(path)) is not None
            and mine.digest != digest
            and not self._is_forgotten(path)
        ]
        if not other or not self._speaks:
            return None
        calls = self._cures(self._by_variable([path for path, *_ in other]))
        return cures.other_constants(other, calls, self._choice)

    def _by_variable(self, paths: Sequence[str]) -> list[str]:
        """Without those of a variable that a function's closure holds as well: ``stepped.best`` beside ``best``."""
        return [
            path
            for path in paths
            if self._kinds.get(root_of(path)) != "function" or path.rpartition(".")[2] not in paths
        ]

    def _cures(self, paths: Sequence[str]) -> list[str]:
        named = {path for path in paths if path in self._marks and self._marks[path].named}
        return cures.calls(paths, self._kinds, self._names, self._is_simple, self._unset, named)

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


def _contents(marks: Mapping[str, Mark]) -> dict[str, dict[str, str]]:
    """Digests by path, by the variable that holds them."""
    found: dict[str, dict[str, str]] = {}
    for path, mark in marks.items():
        found.setdefault(root_of(path), {})[path] = mark.digest
    return found


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
