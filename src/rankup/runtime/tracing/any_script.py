"""What ``rankup verify`` records of a script that does not use ``run.steps``: each step of its optimizers.

torch tells of each step of any optimizer, whichever library calls it. Records are those of ``trace.py``, and besides:

- ``before``: with what a step began: digests of ``weights``, ``optimizer`` and ``options``, the learning rates ``lr``,
  how many parameters are ``frozen``, the buffers that are ``counts``, the weights that no optimizer steps
  (``untrained``: averages, teachers), scale and growth tracker of each ``GradScaler``: ``scales``
- ``batches``, ``rows``: a digest of each batch that a DataLoader gave since the step before, and its samples: the
  indices that the sampler told, or digests. ``epoch``: the number of the loader's pass
- ``inputs``: a digest of what each outermost call of a module was given (``script_inputs.py``), and in ``iterated``
  the generators before a loader began
- ``saved``, ``saves``, ``evaluated``, ``epoch_end``: what else happened since then (``between_steps.py``)
- ``gradients``, ``gradient_size``: a digest of the gradients, and the sum of their absolute values
- ``untracked``: the global generators

A script knows no number of its steps over all attempts. So a resumed process looks for the weights with which it begins
among those of the attempts before (``RANKUP_TRACE_REFERENCE``, a folder in each line): there it goes on
(``script_position.py``).
``restored`` says what was found: ``state``, ``weights`` alone, or ``nothing``; then the steps count from
``RANKUP_TRACE_KILLED``, the last step of the attempt before. ``done`` is written at the end of the script. After step
``RANKUP_TRACE_LAST`` the script ends, as by ``sys.exit()``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from rankup.core.records import RecordWriter, read_records
from rankup.runtime.digest import digest, fingerprint, size_of
from rankup.runtime.live_objects import objects_of
from rankup.runtime.tracing.between_steps import EPOCH, BetweenSteps
from rankup.runtime.tracing.fault_injection import VARIABLE as INTERRUPT_VARIABLE
from rankup.runtime.tracing.fault_injection import FaultInjection
from rankup.runtime.tracing.saves import SAVES
from rankup.runtime.tracing.script_inputs import ScriptInputs, fields, generators, options, parameters
from rankup.runtime.tracing.script_position import position
from rankup.strategies.clipping import local

VARIABLE = "RANKUP_TRACE"
SEVERAL = "several"  # the file that says that two processes train as one rank
REFERENCE, KILLED, LAST = "RANKUP_TRACE_REFERENCE", "RANKUP_TRACE_KILLED", "RANKUP_TRACE_LAST"


class ScriptTrace:
    """Of this process. Nothing is written before the first step of an optimizer."""

    def __init__(self, rank: int, folder: Path) -> None:
        self._rank, self._folder = rank, folder
        self._records: RecordWriter | None = None
        self._interruption: FaultInjection | None = None
        self._step = 0  # over all attempts, from 1
        self._numbers: dict[int, int] = {}  # optimizer → its place among those that have stepped
        self._kept: list[Optimizer] = []  # so that no other gets an id
        self._names: dict[int, str] = {}  # parameter → its name in the largest module that has it
        self._buffers: list[torch.Tensor] = []
        self._untrained: list[list[torch.Tensor]] = []  # of each outermost module, what no optimizer steps
        self._expected: list[str] | None = None  # batches of the step at hand in the uninterrupted training
        self._inputs = ScriptInputs(has_run)
        self._before: dict[str, Any] = {}
        self._last = int(os.environ.get(LAST, "0"))
        self._silent = False
        self.between = BetweenSteps(self._reached)

    def forked(self) -> None:
        """A process that a training has forked (a loader's worker, a helper) is not the training."""
        self._silent = self._silent or self._records is not None

    def _reached(self, what: str) -> None:
        if self._interruption is not None and not self._silent:
            if what == EPOCH:
                self._interruption.reached(EPOCH, self._step)
            else:
                self._interruption.evaluation(self._step)

    def scaled_step(self, *_: Any) -> None:
        """After each ``GradScaler.step``: if it skipped the step, drop what was collected for it."""
        if self.between.skips():
            self._inputs.skips()

    def loss(self, tensor: torch.Tensor, _: Any = None) -> None:
        self.between.loss(tensor)
        self._inputs.used()

    def zeroed(self, owner: Optimizer | nn.Module, _: Any = None) -> None:
        """After each ``zero_grad``: if no gradient is left, what was collected for them is of no step."""
        if not self.between.pending:
            return
        owned = owner.parameters() if isinstance(owner, nn.Module) else parameters(owner)
        trained = (p for optimizer in self._kept for p in parameters(optimizer)) if self._kept else owned
        if not any(p.grad is not None and bool(local(p.grad).any()) for p in trained):
            self.between.drops()
            self._inputs.drops()

    def before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if has_run() or self._silent or _makes_state():
            return
        if id(optimizer) not in self._numbers:
            self._numbers[id(optimizer)] = self._free_number()
            self._kept.append(optimizer)
        if self._records is None:
            self._name_parameters()
        self._before = self._now(optimizer)
        if self._records is None:
            self._begin()
        if not self._silent:
            self._stop_at_last()

    def _stop_at_last(self) -> None:
        if self._last and self._step >= self._last:
            sys.exit()

    def _free_number(self) -> int:
        return next(number for number in count() if number not in self._numbers.values())

    def _now(self, optimizer: Optimizer) -> dict[str, Any]:
        return {
            "optimizer_number": self._numbers[id(optimizer)],
            "weights": fingerprint([p.detach() for p in parameters(optimizer)]),
            "optimizer": fingerprint([fields(optimizer, p) for p in parameters(optimizer)]),
            "options": digest(options(optimizer)),
            "lr": [float(group.get("lr", 0.0)) for group in optimizer.param_groups],
            "frozen": sum(not p.requires_grad for p in parameters(optimizer)),
            "untrained": sorted(map(fingerprint, self._untrained)),
            "counts": fingerprint([buffer for buffer in self._buffers if not buffer.is_floating_point()]),
            "scales": self.between.scales,
        }

    def _begin(self) -> None:
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if dist.is_available() and dist.is_initialized():  # a script may start its ranks by itself
            self._rank, world_size = dist.get_rank(), dist.get_world_size()
        if not self._is_the_first():
            self._silent = True
            return
        trained = (local(parameter.detach()) for parameter in parameters(self._kept[0]))
        SAVES.least = max(1, sum(each.numel() * each.element_size() for each in trained) // 2)
        self._step, restored = self._position()
        self._records = RecordWriter(self._folder / f"rank-{self._rank}.jsonl")
        asked = os.environ.get(INTERRUPT_VARIABLE, "").split(";")
        # A request to stop is heard by rankup's own loop only; ``LAST`` ends this one.
        asked = [part for part in asked if not part.startswith("stop ")]
        self._interruption = FaultInjection(";".join(asked), self._rank, self._folder)
        self._records.write(
            "begin",
            step=self._step,
            at=[],
            world_size=world_size,
            state={},
            untracked={},
            variables={},
            any_script=True,
            restored=restored,
            generators=self._inputs.began,
            draws=self._inputs.draws,
            workers=self._inputs.workers,
            seed=torch.initial_seed(),
        )

    def _is_the_first(self) -> bool:
        """Whether no other process of this attempt trains as this rank, or has trained to its end: the steps of two
        would be one muddle. One that a launcher starts again after a failure goes on for the first."""
        claim, me = self._folder / f"training-{self._rank}", f"{os.uname().nodename} {os.getpid()}"
        try:
            claim.symlink_to(me)  # at once, with its content
        except FileExistsError:
            host, _, pid = str(claim.readlink()).rpartition(" ")
            lives = host == os.uname().nodename and Path("/proc", pid).exists()
            if lives or read_records(self._folder / f"rank-{self._rank}.jsonl", "exit"):
                (self._folder / SEVERAL).touch()
                return False
            claim.unlink()
            claim.symlink_to(me)
        return True

    def _position(self) -> tuple[int, str]:
        """(steps that are done, what was restored)."""
        folders = os.environ.get(REFERENCE, "")
        if not folders:
            return 0, ""
        steps = [
            step
            for folder in folders.split("\n")
            for step in read_records(Path(folder) / f"rank-{self._rank}.jsonl")
            if "before" in step
        ]
        found = position(steps, self._before, self.between.taken, int(os.environ.get(KILLED, "0")))
        if found.step is not None:
            # A script that skips what was trained, and a loader that is a batch ahead, have taken more by now.
            self._expected = found.step.get("batches")
            number = found.step["before"]["optimizer_number"]
            self._numbers[id(self._kept[0])] = self._before["optimizer_number"] = number
        return found.done, found.restored

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self._records is None or self._interruption is None or self._silent or _makes_state():
            return
        self._interruption.record_follows()
        self._step += 1
        expected, self._expected = self._expected, None
        saved = SAVES.since_step()
        gradients = [p.grad.detach() for p in parameters(optimizer) if p.grad is not None]
        self._records.write(
            "step",
            step=self._step,
            at=[],
            **self.between.since_step(expected),
            **self._inputs.take(),
            **saved,
            before=self._before,
            size=(size := size_of(gradients)),  # not finite: nor are the weights
            gradients=(given := fingerprint(gradients)),
            gradient_size=size,
            # Its state after the step is what the next one begins with: once is enough.
            state={
                "optimizer before": self._before["optimizer"],
                "gradients": given,  # the first to differ, where a sum is rounded
                **dict(self._state(optimizer, after=False)),
            },
            untracked=generators(),
            variables={},
            random="",
        )
        if saved["saved"]:
            self._interruption.saved(self._step)
        self._interruption.step(self._step)
        self._stop_at_last()

    def _state(self, optimizer: Optimizer, *, after: bool = True) -> Iterator[tuple[str, str]]:
        for number, parameter in enumerate(parameters(optimizer)):
            name = self._names.get(id(parameter), f"parameter {number}")
            yield f"model/{name}", fingerprint(parameter.detach())
            for field, value in sorted(fields(optimizer, parameter).items()) if after else ():
                yield f"optimizer/{name}/{field}", fingerprint(value)
        yield "optimizer/options", digest(options(optimizer))
        yield "buffers", fingerprint(self._buffers)
        if self.between.scales:
            yield "loss scale", digest(self.between.scales)

    def _name_parameters(self) -> None:
        # A collection of garbage changes the order of live objects, and it comes when it comes.
        modules = sorted(objects_of(lambda kind: issubclass(kind, nn.Module)), key=_extent)
        for module in modules:
            self._names |= {id(parameter): name for name, parameter in module.named_parameters()}
        optimizers = objects_of(lambda kind: issubclass(kind, Optimizer))
        stepped = {id(p) for optimizer in optimizers for p in parameters(optimizer)}
        found = {
            id(buffer): buffer
            for module in reversed(modules)
            if any(id(parameter) in stepped for parameter in module.parameters())
            for buffer in module.buffers()
        }
        self._buffers = list(found.values())
        inner = {id(part) for module in modules for part in module.modules() if part is not module}
        outermost = [module for module in modules if id(module) not in inner]
        rest = [[p for p in module.parameters() if id(p) not in stepped] for module in outermost]
        self._untrained = [each for each in rest if each]
        trained = {id(parameter) for optimizer in self._kept for parameter in parameters(optimizer)}
        self.between.trains(
            [
                module
                for module in sorted(modules, key=lambda each: sum(1 for _ in each.modules()))
                if trained and trained.issubset(id(each) for each in module.parameters())
            ]
        )

    def exit(self) -> None:
        # Python sets last_type before it ends with an uncaught exception; any other exit is a success.
        failed = getattr(sys, "last_type", None) is not None
        if self._records is None or self._interruption is None or self._silent or failed:
            return
        saved = SAVES.since_step()
        self._records.write("done", step=self._step + 1, before=self._now(self._kept[0]))
        self._interruption.reached("exit", self._step)
        ends = dict(pair for optimizer in self._kept for pair in self._state(optimizer))
        weights = [p.detach() for optimizer in self._kept for p in parameters(optimizer)]
        more = {**saved, **self.between.events(), "state": ends, "size": size_of(weights)}
        self._records.write("exit", step=self._step, untracked={}, variables={}, random="", **more)
        self._records.close()


def _extent(module: nn.Module) -> tuple[int, int, list[str]]:
    """Of a module: a wrapper comes after what it wraps."""
    names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    return sum(1 for _ in module.parameters()), sum(1 for _ in module.modules()), names


def has_run() -> bool:
    """Whether rankup's own loop is traced in this process."""
    own = sys.modules.get("rankup.runtime.tracing.trace")
    return own is not None and own._latest is not None


def _makes_state() -> bool:
    """Whether the step at hand is one of zeros, by which torch.distributed.checkpoint makes an optimizer's state."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_init_optim_state":
        frame = frame.f_back
    return frame is not None
