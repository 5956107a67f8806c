"""``Run``, what a training loop calls. Its members are few (docs/adr/0010-a-run-has-few-members.md).

run = rankup.init()
model, opt, data = run.prepare(model, lambda p: Adam(p, lr=1e-3), dataset, global_batch=256)
for x, y in run.steps(data, epochs=90):
    run.backward(loss_fn(model(x), y))
    run.step(opt)
"""

from __future__ import annotations

import atexit
import functools
import inspect
import weakref
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.errors import RankupError
from rankup.runtime.checkpointing import registered_state, stop
from rankup.runtime.checkpointing.checkpointing import Checkpointing
from rankup.runtime.checkpointing.model_form import Frozen, ModelForms
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.registered import Values
from rankup.runtime.checkpointing.settings import ResumeSettings
from rankup.runtime.checkpointing.state_parts import StateParts
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.feeds import Data
from rankup.runtime.data.identity import SameDataCheck
from rankup.runtime.data.portions import Batch, Batches
from rankup.runtime.loop.epochs import Epoch, loop
from rankup.runtime.loop.evaluation import Evaluations
from rankup.runtime.loop.gradients import Step
from rankup.runtime.loop.meter import Meter
from rankup.runtime.loop.optimizer import OptimizerSource
from rankup.runtime.loop.optimizer_steps import OptimizerSteps
from rankup.runtime.model_transforms import Models
from rankup.runtime.prepare import LoaderArguments, Preparation, PrepareArguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rankup.runtime.checkpointing.run_state import RunState
    from rankup.runtime.distributed.reduce import Number
    from rankup.runtime.loop.run_strategy import RunStrategy

ModelT = TypeVar("ModelT", bound=Models)
T = TypeVar("T")


class Run:
    """One training run on this process. Made by ``rankup.init``; see there."""

    def __init__(self, context: RunContext, snapshots: Snapshots | None, watch: stop.StopWatch) -> None:
        """Starts nothing: ``rankup.init`` has met the other ranks already."""
        self._context = context
        policy = (snapshots or Snapshots()).in_force()
        settings = ResumeSettings(context, policy.resume_with)
        self._steps = steps = OptimizerSteps(context)
        parts = StateParts(Frozen(context), ModelForms(context, policy.lost or ""), settings)
        same_data = SameDataCheck(context.seed, context.control)
        self._checkpointing = Checkpointing(context, parts, steps, same_data, snapshots, watch)
        self._evaluations = Evaluations(context, self._checkpointing)
        self._preparation = Preparation(context, settings, same_data)
        #: Who this process is: ``rank``, ``world_size``, ``local_rank``, ``is_main``, …
        self.world = context.world
        #: Where this process computes.
        self.device = context.device
        #: Means over batches and ranks, which are in the snapshots.
        self.meter = Meter(self)
        self._parts = parts
        registered_state.register_own(context, self.meter)
        # A loop that a variable holds, and that was left unfinished: Python would end it when modules are gone.
        self._loops: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()
        atexit.register(_close, self._loops)

    @functools.cached_property
    def strategy(self) -> RunStrategy:
        """``run.strategy.name``, and ``forward_backward`` for loops that also run as a pipeline."""
        from rankup.runtime.loop.run_strategy import RunStrategy

        return RunStrategy(self._context)

    # -------------------------------------------------------------- before the loop

    @overload
    def prepare(
        self, model: ModelT, optimizer: OptimizerSource, dataset: Data, **options: Unpack[PrepareArguments]
    ) -> tuple[ModelT, Optimizer, DataFeed]: ...

    @overload
    def prepare(
        self, model: ModelT, optimizer: None, dataset: Data, **options: Unpack[PrepareArguments]
    ) -> tuple[ModelT, None, DataFeed]: ...

    @overload
    def prepare(
        self,
        model: ModelT,
        optimizer: OptimizerSource,
        dataset: None = None,
        **options: Unpack[PrepareArguments],
    ) -> tuple[ModelT, Optimizer, None]: ...

    @overload
    def prepare(
        self, model: ModelT, optimizer: None, dataset: None = None, **options: Unpack[PrepareArguments]
    ) -> tuple[ModelT, None, None]: ...

    def prepare(
        self, model: Models, optimizer: OptimizerSource | None, dataset: Data | None = None, **options: Any
    ) -> tuple[Any, Any, DataFeed | None]:
        """Bring a model, its optimizer and its training data to this rank.

        - ``model`` goes to the device and becomes real DDP, or FSDP2, where there are several processes. A list, tuple
          or dict of models for one optimizer over all of them comes back as one.
        - ``optimizer`` is a function of the list of parameters, called afterwards; or one that is built and has no
          state yet, whose groups are carried over by parameter name; or None for a frozen model.
        - ``dataset``: a map-style Dataset, ``ResidentData``, or an IterableDataset (docs/how-to/streams.md).

        The options:

        - ``global_batch``: samples per optimizer step over **all** processes. ``drop_last=True`` leaves out the short
          last one of each epoch.
        - ``shuffle=True``; ``sampler``, ``batch_sampler``: another order of a map-style data set, the same on all
          ranks; a batch of the latter is a global batch, and ``global_batch`` is left out.
        - ``accumulate=1``: micro-batches per step; ``clip=None``: largest norm of the gradient. Both, and
          ``sync_batchnorm``, require ``run.backward(loss)`` and ``run.step(opt)`` in the loop's body.
        - ``channels_last``, ``sync_batchnorm``, ``compile`` (False) change how the model computes, and not what;
          ``find_unused_parameters=False`` is DDP's.
        - ``sample_rng=None``: seed the global generators per sample; None finds out whether the data set draws
          numbers. ``sharded=None``: who splits a stream (docs/how-to/streams.md).
        - Everything else goes to the DataLoader (``num_workers``, ``collate_fn``, ``pin_memory``, …).

        Afterwards the generators are re-seeded per rank, so that dropout differs between ranks.
        """
        return self._preparation.prepare(model, optimizer, dataset, **options)

    def register(self, *, per_rank: bool = False, **things: Any) -> Values:
        """Add things to the state of the run, under the names given, before the loop.

        - a thing with ``state_dict`` and ``load_state_dict``: a schedule, an average of weights;
        - a list, dict, set or deque of plain values and tensors; a tensor, a NumPy array, a generator of random
          numbers: the object itself is restored, so change it in place;
        - a number, string, None, or a tuple of these: ``values = run.register(best=0.0)``, then ``values.best``;
        - any other object of the script, and a prepared model or its data set: its attributes that the training
          changes, as far as they are plain values or have a state.

        It must be the same on all ranks, unless ``per_rank``. Raises RankupError for what no snapshot can hold, and
        for ``per_rank`` under any-world.
        """
        return registered_state.register(self._context, things, per_rank=per_rank)

    def forget(self, *names: str) -> None:
        """Values that change in training and that a resume may lose, since they only print: ``run.forget("n", "losses",
        "self.timer")``. What is neither registered nor named here stops a resume that would lose it."""
        self._context.forgotten |= {*names}

    # -------------------------------------------------------------------- the loop

    def epochs(self, epochs: int, data: DataFeed | None = None) -> Iterator[Epoch]:
        """``for epoch in run.epochs(90): for x, y in epoch: …``; what follows the inner loop runs once per epoch."""
        return self._closed_at_exit(self._loop(data, "epochs", epochs, flat=False))

    def steps(
        self, data: DataFeed | None, *, epochs: int | None = None, steps: int | None = None
    ) -> Iterator[Any]:
        """This rank's batches of ``epochs`` epochs, one after another: the flat form of ``run.epochs``. Or of ``steps``
        steps, over as many epochs as that takes. Both count from the beginning, also after a resume."""
        if (epochs is None) == (steps is None):
            raise RankupError("epochs-or-steps", "run.steps takes epochs=, or steps=, and one of them")
        unit, goal = ("steps", steps) if epochs is None else ("epochs", epochs)
        return Batches.of(self._closed_at_exit(_flat(self._loop(data, unit, goal, flat=True))))

    def _loop(
        self, data: DataFeed | None, unit: str, goal: int | None, *, flat: bool
    ) -> Generator[Epoch, None, None]:
        parts = self._context, self._checkpointing, self._evaluations, self._steps
        return loop(*parts, data, unit, goal, flat=flat)

    def _closed_at_exit(self, loop: Generator[T, None, None]) -> Generator[T, None, None]:
        self._loops.add(loop)
        return loop

    def batches(
        self,
        dataset: Data,
        *,
        global_batch: int = 1024,
        sample_rng: bool | None = None,
        sharded: bool | str | None = None,
        **loader: Unpack[LoaderArguments],
    ) -> Iterator[Any]:
        """Each sample of ``dataset`` once over all ranks, in order: for evaluation. Gradients are off in its body.

        Ranks may get different numbers of batches, even none: no collective may stand in the loop's body. Add up on
        each rank, and ``run.sum`` afterwards.
        """
        feed = self._preparation.test_data(dataset, global_batch, sample_rng, sharded, loader)
        yield from self._evaluations.visit(feed)

    @property
    def batch(self) -> Batch:
        """What the loop's body has now.

        ``samples``: those that this rank answers for, to count, so that a sum over ranks is right (0 on a dummy batch,
        and on all ranks but one if they work on the same batch). ``total``: samples of the whole step, over all ranks.
        ``last``: whether the optimizer steps after it. Raises RankupError outside of a loop.
        """
        batch = self._context.batch
        if batch is None:
            raise RankupError("no-batch", "run.batch exists in the body of a loop only", exit_code=1)
        return batch if self._context.plan.reports else batch._replace(samples=0)

    @property
    def global_step(self) -> int:
        """Steps that are done, over all loops and attempts; in the loop's body those before it."""
        return self._context.global_step

    # --------------------------------------------------------------- the loop's body

    def backward(
        self, loss: torch.Tensor, *, count: float | torch.Tensor | None = None, reduction: str = "mean"
    ) -> None:
        """``loss.backward()``, weighed so that the step is that of the global batch.

        ``loss`` is the mean over this rank's samples of the (micro-)batch; or over ``count`` units (tokens, targets
        that are not ignored, the sum of their class weights), and then the step is that of the mean over the units of
        all ranks. ``reduction="sum"``: a sum over this rank's samples, whose plain loop sums over the global batch.
        ``reduction="global"``: the loss of the whole global batch, computed on every rank from ``run.gather``.
        """
        run = self._context
        run.nan_watch.see("the loss", loss, run.batch, run.global_step + 1)
        run.gradients.backward(run.batch, loss, count, reduction)

    def step(self, optimizer: Optimizer) -> Step | None:
        """After the last micro-batch of a step: clip, ``optimizer.step()``, ``zero_grad()``.

        The step that was taken, with its ``grad_norm``; None after other micro-batches, and where fp16 overflowed: then
        it is taken on no rank. So ``if run.step(opt): sched.step()`` moves a schedule once per step.
        """
        return self._context.gradients.step(self._context.batch, optimizer)

    @overload
    def gather(self, tensor: torch.Tensor) -> torch.Tensor: ...

    @overload
    def gather(self, tensor: torch.Tensor, *, rows: Literal[True]) -> tuple[torch.Tensor, torch.Tensor]: ...

    def gather(
        self, tensor: torch.Tensor, *, rows: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """All ranks' rows of ``tensor`` in sample order, on all ranks, with gradients: for losses that compare the
        samples of a global batch. ``tensor`` is (n, …), one row per sample. A collective: every rank calls it.

        With ``rows=True`` also which of them are this rank's: int64 (n,).

        In a training step its loss goes through ``run.backward``. Not with ``accumulate`` or ``any-world``, and not in
        the body of ``run.batches``, where ranks may have different numbers of batches.
        """
        from rankup.runtime.distributed.gather import gather

        run = self._context
        return gather(run.here, run.gradients, run.batch, tensor, rows=rows)

    # --------------------------------------------------------------------- numbers

    def sum(self, value: Number) -> Number:
        """The sum over all ranks, on all ranks. A collective: every rank calls it. Number or tensor, type kept.

        A rank whose share of a training batch is empty computes on a dummy batch: in the loop's body, add up
        ``run.batch.samples`` (0 there), or use ``run.mean``, which knows.
        """
        from rankup.runtime.distributed.reduce import reduce_sum

        self._context.check_sum()
        return reduce_sum(value, self._context.control)

    def mean(self, value: Number, count: int | None = None) -> float | torch.Tensor:
        """The mean over all ranks, weighed by ``count`` (in the loop's body: this rank's samples). A collective."""
        from rankup.runtime.distributed.reduce import reduce_mean

        if count is None:
            if self._context.batch is None:
                raise RankupError(
                    "no-count", "run.mean(value, count) needs count= outside of a training step"
                )
            count = self._context.samples
        self._context.check_sum()
        return reduce_mean(value, count, self._context.control)

    def log(self, *, over_ranks: bool = False, **numbers: float | torch.Tensor) -> None:
        """Numbers to show: in the progress, the records, ``rankup status`` and the loggers of ``rankup.init(log=…)``.

        Call it in the loop's body for a step, or after the inner loop for an epoch. They are rank 0's numbers, and
        cost no wait for the device; with ``over_ranks`` their means over all ranks, weighed by samples: a collective,
        in the loop's body. Numbers of an epoch, and the one that ``Retention(metric=…)`` names, are in every snapshot
        from then on.
        """
        if over_ranks:
            numbers = {
                name: self.mean(value) if isinstance(value, torch.Tensor) else self.mean(float(value))
                for name, value in numbers.items()
            }
        self._context.log(numbers)

    def print(self, *values: object, **options: Any) -> None:
        """``print`` on rank 0 alone."""
        self._context.print(*values, **options)

    # --------------------------------------------------------------------- results

    def save(self) -> None:
        """Save a snapshot now, and return when it is durable; for a loop that is left before its last epoch, which
        saves by itself. Where ``run.state.state_dict()`` may be taken. A collective.
        """
        from rankup.runtime.checkpointing.run_state import check_between_steps

        check_between_steps(self._context)
        if (control := self._context.control) is not None:
            control.enter("run.save")
        self._checkpointing.save_now()

    @functools.cached_property
    def state(self) -> RunState:
        """``state_dict`` and ``load_state_dict`` of the whole run, for scripts that store it themselves."""
        from rankup.runtime.checkpointing.run_state import RunState

        return RunState(self._context, self._parts, self._steps)

    def save_model(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Write the model's ``state_dict``, whole and on the CPU, to one file, on rank 0: for
        ``model.load_state_dict(torch.load(path))`` on one process, without rankup. A collective: every rank calls it.

        A name that ends in ``.safetensors`` gives that format. ``model`` is needed where several were prepared. Raises
        RankupError, on all ranks, if the file cannot be written.
        """
        from rankup.runtime.checkpointing.save_model import save_model

        save_model(self._context, Path(path), model)


def _flat(epochs: Iterable[Epoch]) -> Generator[Iterable[Any], None, None]:
    for epoch in epochs:
        yield from epoch.portions()


def _close(loops: Iterable[Generator[Any, None, None]]) -> None:
    for each in list(loops):
        if inspect.getgeneratorstate(each) != inspect.GEN_RUNNING:  # in another thread
            each.close()
