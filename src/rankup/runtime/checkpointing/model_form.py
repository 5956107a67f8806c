"""What a model is besides its tensors: the kinds of its modules, which parameters are frozen, and which modules are in
evaluation mode. And whether it still has the names, shapes and kinds with which its loop began: a resume has these.

No shape of a weight tells of another activation or dropout, and no snapshot holds a module that the training has put in
place of another one, or a ``forward`` that it has replaced: kinds are compared.

A script that unfreezes layers while it trains resumes with these unfrozen; one that calls ``eval()`` of its BatchNorm
layers after the first epoch resumes with these in that mode. Each state has both as they are, and as they were when the
training began. A process that resumes must begin with the same parameters frozen. Modes are restored if it begins with
the same ones; else the script was edited, and its own hold.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from rankup.core.choices import ACCEPT, STOP
from rankup.core.whole_lines import say
from rankup.errors import RankupError
from rankup.runtime.context import RunContext
from rankup.strategies import Strategy

_SHOWN = 6  # changes of a form


class ModuleKinds:
    """Of one model, from the time when its first loop begins."""

    def __init__(self, strategy: Strategy, model: nn.Module) -> None:
        self._strategy = strategy
        self._model = model
        self._begun = {name: (_form(module), _describe(module)) for name, module in model.named_modules()}

    def now(self) -> dict[str, Any]:
        """``{"shapes": digest of the parameters' shapes, "modules": {name: kind}}``; of a pipeline, in which each rank
        has a part, nothing. A module of the same form is described as it was at the beginning: a probability of
        dropout that the training changes is a value, and not another model."""
        if not self._strategy.every_name:
            return {"shapes": "", "modules": {}}
        shapes = sorted(
            (name, tuple(tensor.shape))
            for name, tensor in self._strategy.tensors(self._model).items()
            if isinstance(tensor, nn.Parameter)
        )
        kinds = {}
        for name, module in self._model.named_modules():
            form, kind = self._begun.get(name, (None, ""))
            kinds[name] = kind if form == _form(module) else _describe(module)
        return {"shapes": hashlib.sha256(repr(shapes).encode()).hexdigest()[:16], "modules": kinds}


def _form(module: nn.Module) -> tuple[type, Callable[..., Any] | None]:
    """The class, and the ``forward`` of this module if that is not its class's."""
    forward: Any = vars(module).get("forward")
    if hasattr(forward, "_torchdynamo_orig_callable"):
        forward = inspect.unwrap(forward)  # ``torch.compile`` changes how it computes, and not what
    forward = getattr(forward, "__func__", forward)
    return _class(module), None if forward is type(module).forward else forward


def _class(module: nn.Module) -> type:
    """As the script knows it: ``fully_shard`` makes a class of its own, and ``prepare`` may convert a BatchNorm."""
    kind = next(each for each in type(module).__mro__ if not each.__module__.startswith("torch.distributed."))
    norm = nn.modules.batchnorm._BatchNorm
    return norm if kind.__module__ == norm.__module__ else kind


def _describe(module: nn.Module) -> str:
    """``Net``; of torch's layers also what they were made with: ``Dropout(p=0.1, inplace=False)``."""
    kind, forward = _form(module)
    described = kind.__qualname__
    if kind.__module__.startswith("torch.nn.modules.") and next(module.children(), None) is None:
        described += f"({module.extra_repr()})"
    if forward is not None:
        described += f" with the forward {getattr(forward, '__qualname__', type(forward).__name__)}"
    return described


class ModelForms:
    """Of one run: whether its models have the form with which the loop began. A resume enters that loop with a model
    that the script has just made, and no snapshot makes a layer, a parameter or a buffer anew."""

    def __init__(self, run: RunContext, choice: str) -> None:
        """``choice``: of ``--lost``; "" where somebody watches, who is told and goes on."""
        self._run = run
        self._choice = choice
        self._kinds: list[ModuleKinds] = []
        self._begun: list[dict[str, str]] = []
        self._said = False

    def begin(self) -> None:
        """A loop begins; nothing is restored yet."""
        self._kinds = [ModuleKinds(self._run.strategy, model) for model, _ in self._run.prepared]
        self._begun, self._said = self._now(), False

    def look(self) -> RankupError | None:
        """Say once what has changed. In a job of a queue it is the error to end with instead."""
        if self._said or self._choice == ACCEPT:
            return None
        changes = [
            f"{name}: {begun.get(name, 'absent')} then, {now.get(name, 'absent')} now"
            for begun, now in zip(self._begun, self._now(), strict=True)
            for name in (begun | now)
            if begun.get(name) != now.get(name)
        ]
        if not changes:
            return None
        self._said = True
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        error = RankupError(
            "other-model",
            "the training has changed the form of its model, so that a resume would be refused: it begins with the "
            f"model that the script has before this loop. {'; '.join(changes[:_SHOWN])}{more}",
            hint="bring the model into this form before the loop, and change only values in it: call it once before "
            "run.prepare, if its first call makes buffers or layers; to prune, torch.nn.utils.prune.identity(module, "
            '"weight") before run.prepare, and the pruning in the loop. Or change it between two loops; --lost accept '
            "if each attempt brings it into this form before its loop",
            exit_code=1,
        )
        if self._choice == STOP:
            return error
        if self._run.world.is_main:
            say(f"warning: {error.message}\n  {error.hint}")
        return None

    def _now(self) -> list[dict[str, str]]:
        """Of each model: name of a module, a parameter or a saved buffer → what it is. Without the buffers of modules
        with a loading of their own, which may make room for another shape."""
        found = []
        for (model, _), kinds in zip(self._run.prepared, self._kinds, strict=False):
            own = {name for name, module in model.named_modules() if _loads_itself(module)}
            form = {
                name: f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
                for name, tensor in self._run.strategy.tensors(model).items()
                if isinstance(tensor, nn.Parameter) or name.rpartition(".")[0] not in own
            }
            found.append({**form, **kinds.now()["modules"]})
        return found


def _loads_itself(module: nn.Module) -> bool:
    loads = type(module)._load_from_state_dict is not nn.Module._load_from_state_dict
    return loads or bool(module._load_state_dict_pre_hooks)


_Names = dict[str, list[str]]  # {"frozen": parameters, "evaluating": modules}, of one model


class Frozen:
    """Of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._begun: list[_Names] = []

    def begin(self) -> None:
        """A stage of the training begins, or is about to be resumed."""
        self._begun = self._now()

    def state(self) -> dict[str, Any]:
        return {"begun": self._begun or self._now(), "now": self._now()}

    def check(self, saved: Mapping[str, Any]) -> None:
        """RankupError ``other-frozen`` if other parameters were frozen when the training began than in this process."""
        for index, (theirs, mine) in enumerate(zip(saved["begun"], self._begun, strict=False)):
            for name in sorted({*theirs["frozen"]} ^ {*mine["frozen"]}):
                was, now = ("frozen", "trained") if name in theirs["frozen"] else ("trained", "frozen")
                raise RankupError(
                    "other-frozen",
                    f"{name} of model {index + 1} was {was} when the training began, and is {now} in this process",
                    hint="freeze the same layers before the loop; or begin a new run, with another directory",
                )

    def load(self, saved: Mapping[str, Any]) -> None:
        every = zip(self._run.prepared, saved["now"], saved["begun"], self._begun, strict=False)
        for (model, _), now, theirs, mine in every:
            frozen, evaluating = {*now["frozen"]}, {*now["evaluating"]}
            for name, parameter in model.named_parameters():
                if parameter.requires_grad == (name in frozen):
                    parameter.requires_grad_(name not in frozen)
            for name, module in model.named_modules() if theirs["evaluating"] == mine["evaluating"] else ():
                module.training = name not in evaluating

    def _now(self) -> list[_Names]:
        """Of each prepared model; of none in a pipeline, where each rank holds a different stage."""
        if not self._run.strategy.every_name:
            return []
        return [
            {
                "frozen": [name for name, each in model.named_parameters() if not each.requires_grad],
                "evaluating": [name for name, module in model.named_modules() if not module.training],
            }
            for model, _ in self._run.prepared
        ]
