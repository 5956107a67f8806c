"""Optimizers that a script keeps beside those of the run: their parameters must be the same on all ranks, too.

A criterion with learned weights and an optimizer of its own trains in one process. On several ranks nobody averages its
gradients: each rank trains its own from its share of the samples, and computes another loss with it. Some parameters
may differ (a perturbation of a rank's samples, a probe on rank 0 alone), so this is a warning, and only of an optimizer
that all ranks have and that has taken more than one step.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rankup.runtime.context import RunContext
from rankup.runtime.distributed.replicas import Sums, on_cpu, same_on_all
from rankup.runtime.tracing.script_variables import name_of, namespaces
from rankup.snapshots.checksum import pair

_WHAT = "the comparison of other optimizers"


class OtherOptimizers:
    """Of one run. With one replica nothing is compared."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._control = run.control if run.replicas > 1 else None
        # In which steps, the first two.
        self._stepped: WeakKeyDictionary[Optimizer, set[int]] = WeakKeyDictionary()
        self._said = False

    def watch(self, stack: ExitStack) -> None:
        """Note each step of an optimizer until ``stack`` closes: a loop begins."""
        if self._control is not None and not self._said:
            stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if not any(optimizer is one for one in self._run.optimizers):
            steps = self._stepped.setdefault(optimizer, set())
            if len(steps) < 2:
                steps.add(self._run.global_step)

    def compare(self) -> None:
        """Warn once, on rank 0. A collective: after an epoch, and the script's code there."""
        if self._control is None or self._said:
            return
        trained = {id(parameter) for model in self._run.models for parameter in model.parameters()}
        mine: Sums = {}
        kept: list[Optimizer] = []
        for optimizer in [one for one, steps in self._stepped.items() if len(steps) > 1]:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            if any(id(p) in trained or hasattr(p, "to_local") for p in parameters):
                continue  # of another optimizer of the run, which holds this one
            sums = on_cpu({str(index): pair(parameter) for index, parameter in enumerate(parameters)})
            mine |= {f"{len(kept)}.{name}": value for name, value in sums.items()}
            kept.append(optimizer)
        if same_on_all(self._control, _WHAT, mine):
            return
        everyone = self._control.gather(_WHAT, mine)
        if any(sums.keys() != everyone[0].keys() for sums in everyone):
            return  # not all ranks have it
        self._said = True
        if self._run.world.is_main:
            differs = next(
                name for name in everyone[0] if any(s[name] != everyone[0][name] for s in everyone)
            )
            optimizer = kept[int(differs.partition(".")[0])]
            name = name_of(optimizer, namespaces())
            held = f"{type(optimizer).__name__}{f' ({name})' if name else ''}"
            print(
                f"warning: {held} trains parameters that run.prepare did not get, and they are not the same on all "
                "ranks: each rank trains its own, from its share of the samples, and one process would train others; "
                "run.prepare([model, criterion], lambda p: …) averages their gradients",
                file=sys.stderr,
                flush=True,
            )
