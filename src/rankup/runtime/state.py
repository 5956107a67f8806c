"""The state of a run as one dictionary: what a resume needs, and nothing that can be recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rankup.errors import RankupError
from rankup.runtime.seed import rng_state, set_rng_state

if TYPE_CHECKING:
    from rankup.runtime.run import Run


class Stateful(Protocol):
    """Anything that can be kept: schedules, averages, counters."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def collect(run: Run) -> dict[str, Any]:
    """The state of this rank. Its generators are its own, and so are BatchNorm's statistics in the middle of an epoch;
    the rest is the same on all ranks."""
    return {
        "models": [model.state_dict() for model in run.models],
        "optimizers": [optimizer.state_dict() for optimizer in run.optimizers],
        "kept": {name: thing.state_dict() for name, thing in run.kept.items()},
        "positions": [{**feed.cut, "at": feed.position.resume()} for feed in run.feeds],
        "rng": rng_state(),
        "seed": run.seed,
    }


def restore(run: Run, saved: dict[str, Any]) -> None:
    """Put back what ``collect`` gave; an error where the run is another one, before anything is changed."""
    if saved["seed"] != run.seed:
        raise RankupError(
            "other-seed",
            f"the state was taken with seed {saved['seed']}, this run has {run.seed}: the order would differ",
            hint=f"rankup.init(seed={saved['seed']})",
        )
    if set(saved["kept"]) != set(run.kept):
        raise RankupError(
            "other-kept",
            f"the state keeps {sorted(saved['kept'])}, this run {sorted(run.kept)}",
            hint="call run.keep with the same names before loading",
        )
    for what, mine in (("models", run.models), ("optimizers", run.optimizers), ("positions", run.feeds)):
        if len(saved[what]) != len(mine):
            raise RankupError(
                "other-prepared",
                f"the state holds {len(saved[what])} {what}, this run {len(mine)}",
                hint="call run.prepare as the run did that saved it, before loading",
            )
    for feed, position in zip(run.feeds, saved["positions"], strict=True):
        for name, value in feed.cut.items():
            if position[name] != value:
                raise RankupError(
                    "other-data",
                    f"the state was taken with {name} {position[name]}, this run has {value}: the position in the "
                    "epoch would mean other samples",
                    hint="prepare the same data in the same way",
                )
    for model, state in zip(run.models, saved["models"], strict=True):
        model.load_state_dict(state)
    for optimizer, state in zip(run.optimizers, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    for name, state in saved["kept"].items():
        run.kept[name].load_state_dict(state)
    for feed, position in zip(run.feeds, saved["positions"], strict=True):
        feed.position.epoch, feed.position.step = position["at"]
        feed.position.ended = False
    set_rng_state(saved["rng"])
