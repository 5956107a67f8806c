"""Restores a run from a snapshot, before its first step: all of it, or an error before anything has changed."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state, state
from rankup.runtime.checkpointing.registered import Value
from rankup.runtime.checkpointing.registered_containers import ContainerAdapter
from rankup.runtime.checkpointing.registered_objects import ObjectAdapter
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.digest import fingerprint
from rankup.runtime.distributed.control import raise_on_all
from rankup.runtime.seed import rng_state, set_rng_state
from rankup.runtime.unregistered.walk import ITERATORS
from rankup.runtime.unregistered.watch import Noted
from rankup.snapshots.snapshot import Snapshot


def resume(run: RunContext, parts: StateParts, found: Snapshot, feed: DataFeed) -> None:
    """Restore what ``found`` contains, for a loop over ``feed``. RankupError, before anything has changed, if it
    belongs to another run, or if a value that it has noted would be lost. A collective."""
    then = _watched(run, found)
    noted: Noted = then["noted"]
    # Those with their content.
    caches = {path: told for path, told in then["caches"].items() if len(told) > 2}
    again = _registered_since(run, found.metadata["registered"], caches | noted)
    state.check(run, parts, found.metadata, again)
    lost = None
    if parts.watch is not None:
        since = {name.removesuffix(".*") for name in again}
        found_again = {path for paths in again.values() for path in paths}
        lost = parts.watch.check(noted, then["left"], found_again, since)
        if found.world_size == run.world.world_size:  # else a rank's share of something is another one
            lost = lost or parts.watch.check_constants(
                {path: told for path, told in then["constants"].items() if path not in noted}
            )
    raise_on_all(run.control, "the values that no snapshot holds", lost)
    outline = found.outline()
    tensors = {
        str(index): state.target(run, model, optimizer, outline.get(str(index), {}))
        for index, (model, optimizer) in enumerate(run.prepared)
    }
    found.load_tensors(tensors, partial=not run.strategy.every_name)
    state.restore(
        run,
        parts,
        tensors,
        found.rank_state(),
        found.first_rank_state(),
        found.metadata,
        found.adopted_rank_states,
    )
    if new := [name for name, paths in again.items() if not paths and name not in noted]:
        run.print(
            f"warning: {', '.join(new)}: registered since {found.path.name} was saved, which has no value of it: it "
            "begins with the script's"
        )
    for name, paths in again.items():
        _find_again(run.registered[name], name, {path: (caches | noted)[path] for path in paths})
    run.print(f"resumed from {found.path.name}: epoch {feed.position.epoch + 1}, step {feed.position.step}")


class ResumedEpoch:
    """An epoch that is resumed in its middle: the script's code before its inner loop runs a second time. It must not
    change what was restored. The generators are set to their saved states once more: that code may seed them."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._restored = _declared(run)
        self._rng = rng_state()

    def begin(self, done: int) -> None:
        """Its first batch is next, after ``done`` steps. RankupError ``changed-before-inner-loop``."""
        if self._run.world.is_main and (anew := _counting_anew(done)):
            say(
                f"warning: an epoch is resumed in its middle, after step {done}, and {anew} goes over its batches and "
                "begins anew: enumerate(epoch, start=epoch.done), or read epoch.done; in place of zip one data set of "
                "both (torch.utils.data.StackDataset)"
            )
        set_rng_state(dict(self._rng))
        now = _declared(self._run)
        changed = [name for name, digest in self._restored.items() if now.get(name) != digest]
        if changed:
            raise RankupError(
                "changed-before-inner-loop",
                f"this epoch is resumed in its middle, and the code before its inner loop has changed "
                f"{', '.join(changed[:3])}, which the resume had restored",
                hint="that code has run at the beginning of the epoch: write `if epoch.done == 0:` before it, or "
                "change this after the inner loop",
                exit_code=1,
            )


def _counting_anew(done: int) -> str:
    """The ``enumerate`` or ``zip`` that asks for the batch at hand, and does not count from ``done``."""
    for thing in gc.get_objects():
        if type(thing) in (enumerate, zip) and _runs(thing):  # ``isinstance`` asks some for their class
            count: Any = thing.__reduce__()[1][1] if isinstance(thing, enumerate) else 0
            if count < done:
                return type(thing).__name__
    return ""


def _runs(thing: Any) -> bool:
    """Whether an iterator leads to a generator that runs now."""
    if isinstance(thing, (*ITERATORS, tuple)):
        return any(_runs(each) for each in gc.get_referents(thing))
    return bool(getattr(thing, "gi_running", False))


def _declared(run: RunContext) -> dict[str, str]:
    """Digests of what a script may change by itself: weights, an optimizer's options, what is registered."""
    found = {}
    for index, (model, optimizer) in enumerate(run.prepared, start=1):
        found[f"the weights of model {index}"] = fingerprint([*model.parameters(), *model.buffers()])
        groups = getattr(optimizer, "param_groups", [])
        options = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        found[f"the options of optimizer {index}"] = fingerprint(options)
    with registered_state.together(run):
        for name, thing in run.registered.items():
            if not getattr(thing, "timed", False) and name in registered_state.names(run):
                found[f"{name} (run.register)"] = fingerprint(thing.state_dict())
    return found


def _watched(run: RunContext, found: Snapshot) -> dict[str, Any]:
    """What rank 0 has noted beside the snapshot (``UnregisteredWatch.state``), on all ranks. A collective."""
    state = found.first_rank_state() if run.world.is_main else {}
    empty: dict[str, Any] = {"noted": {}, "left": [], "caches": {}, "constants": {}}
    told = [{key: state.get(key, nothing) for key, nothing in empty.items()}]
    if run.control is not None:
        what = "what a snapshot has noted"
        run.control.add(what)
        with run.control.inside(what):
            dist.broadcast_object_list(told, src=0)
    return told[0]


def _registered_since(run: RunContext, before: list[str], noted: Noted) -> dict[str, list[str]]:
    """What is registered by now and was not then: name → paths of the plain values that were noted of it; none of a
    thing that is not plain (a schedule), which is lost, and of a plain one that had not changed. A name that several
    variables have is none."""
    found: dict[str, list[str]] = {}
    for name in registered_state.names(run):
        if name in before:
            continue
        thing = run.registered[name]
        plain = [path for path, (_, _, *content) in noted.items() if content]
        base = name.removesuffix(".*")
        if isinstance(thing, ObjectAdapter):
            paths = [path for path in plain if (place := _below(path, base)) and thing.has(place)]
            found[name] = paths
        else:
            paths = [path for path in plain if path == base] or [
                path for path in plain if path.endswith((f".{base}", f"[{base!r}]"))
            ]
            is_plain = isinstance(thing, (Value, ContainerAdapter))
            if len(paths) == 1 and is_plain:
                found[name] = paths
            elif base in noted or (is_plain and not paths):
                found[name] = []
    return found


def _below(path: str, name: str) -> str:
    """The part of ``path`` behind the variable that holds it: ``.best`` of ``trainer.best``, also of ``self.best``."""
    return (
        path.removeprefix(name)
        if path.startswith((f"{name}.", f"{name}["))
        else path[len(path.split(".")[0]) :]
    )


def _find_again(thing: Any, name: str, noted: Mapping[str, list[Any]]) -> None:
    for path, (_, _, content) in noted.items():
        value = content[0]
        if isinstance(thing, ObjectAdapter):
            thing.put(_below(path, name.removesuffix(".*")), value)
        elif isinstance(thing, Value):
            thing.load_state_dict({"value": value})
        else:
            items = dict(value) if isinstance(value, dict) else list(value)
            thing.load_state_dict({"items": items})
