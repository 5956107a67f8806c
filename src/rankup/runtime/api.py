"""``rankup.init()`` and ``Run``: the three-line library.

run = rankup.init()
model, opt, data = run.prepare(model, lambda p: Adam(p, lr=1e-3), dataset, global_batch=256)
for x, y in run.steps(data, epochs=90):
    run.backward(loss_fn(model(x), y))
    run.step(opt)
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.runtime.argument_types import check_types
from rankup.runtime.checkpointing import state, stop
from rankup.runtime.checkpointing.check_settings import ResumeSettings
from rankup.runtime.checkpointing.checkpointing import Checkpointing
from rankup.runtime.checkpointing.frozen import Frozen
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.registered import as_stateful
from rankup.runtime.checkpointing.registered_state import METER, RECORDS
from rankup.runtime.checkpointing.save_model import save_model
from rankup.runtime.checkpointing.state import StateParts
from rankup.runtime.checkpointing.training_folder import check_name
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import Batch, DataFeed
from rankup.runtime.data.feeds import Data, LoaderOptions
from rankup.runtime.data.loader_options import check_main_guard
from rankup.runtime.device import choose_device, same_bits_everywhere
from rankup.runtime.distributed.gather import gather, row_numbers
from rankup.runtime.distributed.groups import start_groups
from rankup.runtime.distributed.reduce import Number, reduce_mean, reduce_sum
from rankup.runtime.distributed.replicas import Replicas
from rankup.runtime.distributed.sections import one_first, shared_first
from rankup.runtime.loggers.base import logger_names
from rankup.runtime.loop import body_checks
from rankup.runtime.loop.accumulation import PendingGradients
from rankup.runtime.loop.epochs import Epoch, loop
from rankup.runtime.loop.evaluation import Evaluations
from rankup.runtime.loop.meter import Meter
from rankup.runtime.loop.optimizer import OptimizerSource
from rankup.runtime.loop.precision import make_precision
from rankup.runtime.loop.several_models import Models
from rankup.runtime.model_transforms import Adaptations
from rankup.runtime.prepare import Preparation, PrepareArguments
from rankup.runtime.seed import seed_everything
from rankup.runtime.select_strategy import choose_strategy
from rankup.runtime.uncaught import install_error_display
from rankup.strategies import Strategy
from rankup.world import World

if TYPE_CHECKING:
    from typing_extensions import Unpack

ModelT = TypeVar("ModelT", bound=Models)


def init(
    *,
    name: str = "",
    seed: int = 0,
    device: str = "auto",
    precision: str = "fp32",
    strategy: str | Strategy = "auto",
    exact: str = "same-world",
    virtual_shards: int = 4,
    snapshots: Snapshots | None = None,
    log: str = "",
    timeout: timedelta = timedelta(minutes=10),
) -> Run:
    """Find out who this process is and meet the others; on any launcher or none.

    Chooses the device by local rank, the backend by device (nccl or gloo), and seeds every generator with ``seed``,
    equally on all ranks, so that they build the same model. ``device``: auto, cuda, cpu. ``precision``: fp32, tf32,
    bf16, fp16, fp64. ``strategy``: auto (ddp for several processes, none for one), none, ddp, fsdp, or one that was
    made. ``exact``: ``same-world`` is exact to the bit over interruptions; ``any-world`` on other numbers of processes
    too, up to ``virtual_shards`` of them (docs/explanation/exactness.md). ``timeout`` is for one collective.
    ``snapshots`` says when to save, where there is a run directory: every ten minutes, at the end, and when told to
    stop. Several trainings of one process (folds, learning rates) are told apart by their order, or by ``name``: each
    resumes from its own snapshots. ``log``: where else the numbers of ``run.log`` go, on rank 0: ``"csv"``,
    ``"tensorboard"``, ``"wandb"``, ``"mlflow"``, or several with commas between them.

    Raises RankupError for a contradictory environment, an unreachable rendezvous, or an unknown name.
    """
    install_error_display()
    optional = type(None)
    check_types(
        "rankup.init",
        {
            "name": (name, (str,), '"fold-2"'),
            "seed": (seed, (int,), "0"),
            "device": (device, (str,), '"cuda"'),
            "precision": (precision, (str,), '"bf16"'),
            "strategy": (strategy, (str, Strategy), '"ddp"'),
            "exact": (exact, (str,), '"any-world"'),
            "virtual_shards": (virtual_shards, (int,), "4"),
            "snapshots": (snapshots, (Snapshots, optional), 'rankup.Snapshots(every="10m")'),
            "log": (log, (str,), '"csv,tensorboard"'),
            "timeout": (timeout, (timedelta,), "datetime.timedelta(minutes=10)"),
        },
    )
    check_name(name)
    loggers = logger_names(log)
    check_main_guard()
    world = World.detect(os.environ)
    place = choose_device(world, device)
    computing = make_precision(precision, place)
    chosen = choose_strategy(strategy, world, exact=exact, virtual_shards=virtual_shards)
    if chosen.exact == "any-world":
        same_bits_everywhere(place)
    if computing.scaled:
        chosen.check("fp16")
    groups = start_groups(world, place, timeout)
    seed_everything(seed)
    folder = RunDir.from_environment()
    context = RunContext(
        world, place, computing, chosen, seed, groups.control, name=name, directory=folder, loggers=loggers
    )
    return Run(context, snapshots, stop.watch(folder, world.rank, groups.control), groups.patient)


class Run:
    """One training run on this process. Made by ``rankup.init``; see there."""

    def __init__(
        self,
        context: RunContext,
        snapshots: Snapshots | None,
        watch: stop.StopWatch,
        patient: dist.ProcessGroup | None,
    ) -> None:
        """Starts nothing: ``rankup.init`` has met the other ranks already."""
        self._context = context
        self._patient = patient  # a group for sections in which others wait
        self._state_parts = StateParts(
            PendingGradients(context),
            Frozen(context),
            ResumeSettings(context, (snapshots or Snapshots()).in_force().resume_with),
        )
        self._checkpointing = Checkpointing(context, self._state_parts, Replicas(context), snapshots, watch)
        self._evaluations = Evaluations(context, self._checkpointing)
        self._preparation = Preparation(context, self._state_parts.settings)
        #: Rank, local_rank, world_size, …, of this process.
        self.world = context.world
        self.device = context.device
        #: The run directory under ``rankup run`` and ``rankup submit``, else None.
        self.directory = context.directory
        #: The name of the strategy in force: ``"ddp"``.
        self.strategy = context.strategy.name
        #: The simple values that were registered, as attributes.
        self.values = context.values
        #: Means over batches and ranks, which are in the snapshots.
        self.meter = Meter(self)
        context.registered |= {METER: self.meter, RECORDS: context.records}
        self._best_by = (snapshots or Snapshots()).keep.metric
        if (scaler := context.gradients.scaler) is not None:
            self.register(loss_scale=scaler)

    # ------------------------------------------------------------------ who

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0: the one that prints and writes."""
        return self._context.is_main

    def print(self, *values: object) -> None:
        """``print`` on rank 0 alone."""
        self._context.print(*values)

    @property
    def metrics(self) -> dict[str, float]:
        """Yours: numbers that you put here are in the snapshots, and can choose the best of them."""
        return self._context.metrics

    @metrics.setter
    def metrics(self, metrics: dict[str, float]) -> None:
        self._context.metrics = metrics

    # -------------------------------------------------------------- prepare

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
        self,
        model: Models,
        optimizer: OptimizerSource | None,
        dataset: Data | None = None,
        *,
        global_batch: int | None = None,
        shuffle: bool = True,
        accumulate: int = 1,
        clip: float | None = None,
        find_unused_parameters: bool = False,
        channels_last: bool = False,
        sync_batchnorm: bool = False,
        compile: bool = False,
        sample_rng: bool | None = None,
        sharded: bool | str | None = None,
        drop_last: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        **loader: Any,
    ) -> tuple[Any, Any, DataFeed | None]:
        """Bring a model, its optimizer and its training data to this rank.

        - ``model`` goes to the device and becomes real DDP, or FSDP2, where there are several processes.
          ``channels_last``, ``sync_batchnorm`` and ``compile`` change how it computes, and not what. A list, tuple or
          dict of models for one optimizer over all of them comes back as one.
        - ``optimizer`` is a function of the list of parameters, called afterwards; or one that is built and has no
          state yet, whose groups are carried over by parameter name; or None for a frozen model.
        - ``dataset``: a map-style Dataset, ``ResidentData``, or an IterableDataset (no exactness promise).
          ``sharded`` declares who splits a stream: None finds out (docs/how-to/streams.md).
        - ``global_batch``: samples per optimizer step over **all** processes. ``drop_last=True`` leaves out the short
          last one of each epoch.
        - ``sampler``, ``batch_sampler``: another order of a map-style data set, the same on all ranks; a batch of the
          latter is a global batch, and ``global_batch`` is left out. ``shuffle`` then means nothing.
        - ``accumulate``: micro-batches per step; ``clip``: largest norm of the gradient. Either, and
          ``sync_batchnorm``, requires ``run.backward(loss)`` and ``run.step(opt)`` in the loop's body.
        - ``sample_rng``: seed the global generators per sample; None finds out whether the data set draws numbers.
        - Everything else goes to the DataLoader (``num_workers``, ``collate_fn``, ``pin_memory``, …).

        Afterwards the generators are re-seeded per rank, so that dropout differs between ranks.
        """
        check_types(
            "run.prepare",
            {
                "global_batch": (global_batch, (int, type(None)), "256"),
                "accumulate": (accumulate, (int,), "4"),
                "clip": (clip, (int, float, type(None)), "1.0"),
            },
        )
        data = LoaderOptions(
            shuffle,
            accumulate,
            True,
            sample_rng,
            sharded,
            drop_last,
            sampler,
            batch_sampler,
            tuple(inspect.signature(self.prepare).parameters),
        )
        ours = self._preparation
        ours.check(dataset, global_batch, data, loader, clip=clip)
        wrapped, opt, inner = ours.model(
            model,
            optimizer,
            Adaptations(channels_last, sync_batchnorm, compile),
            accumulate=accumulate,
            clip=clip,
            find_unused_parameters=find_unused_parameters,
        )
        feed = None
        if dataset is not None:
            feed = ours.training_data(dataset, global_batch, data, loader, inner)
        ours.separate_ranks()
        return wrapped, opt, feed

    def register(self, *, per_rank: bool = False, **things: Any) -> None:
        """Add things to the state of the run, under the names given, before the loop.

        - a thing with ``state_dict`` and ``load_state_dict``: a schedule, an average of weights;
        - a list, dict, set or deque of plain values and tensors; a tensor, a NumPy array, a generator of random
          numbers: the object itself is restored, so change it in place;
        - a number, string, None, or a tuple of these: ``run.register(best=0.0)``, then ``run.values.best``.

        It must be the same on all ranks, unless ``per_rank``. Raises RankupError for what no snapshot can hold, and
        for ``per_rank`` under any-world.
        """
        for name, thing in things.items():
            if name in self._context.registered:
                raise RankupError("registered-twice", f"run.register({name}=…): the name is taken")
            stateful = as_stateful(name, thing, self._context.values, self._context.device)
            if per_rank:
                stateful.per_rank = True  # type: ignore[attr-defined]
            if getattr(stateful, "per_rank", False) and not getattr(stateful, "timed", False):
                self._context.strategy.check("per_rank_state", name=name)
            self._context.registered[name] = stateful

    # -------------------------------------------------------------- the loop

    def epochs(self, epochs: int, data: DataFeed | None = None) -> Iterator[Epoch]:
        """``for epoch in run.epochs(90): for x, y in epoch: …``; what follows the inner loop runs once per epoch."""
        return self._loop(data, "epochs", epochs)

    def steps(
        self, data: DataFeed | None, *, epochs: int | None = None, steps: int | None = None
    ) -> Iterator[Any]:
        """This rank's batches of ``epochs`` epochs, one after another: the flat form of ``run.epochs``. Or of ``steps``
        steps, over as many epochs as that takes. Both count from the beginning, also after a resume."""
        if (epochs is None) == (steps is None):
            raise RankupError("epochs-or-steps", "run.steps takes epochs=, or steps=, and one of them")
        unit, goal = ("steps", steps) if epochs is None else ("epochs", epochs)
        for epoch in self._loop(data, unit, goal):
            yield from epoch.batches(steps)

    def _loop(self, data: DataFeed | None, unit: str, goal: int | None) -> Iterator[Epoch]:
        return loop(self._context, self._checkpointing, self._evaluations, data, unit, goal)

    def batches(
        self,
        dataset: Data,
        *,
        global_batch: int = 1024,
        sample_rng: bool | None = None,
        sharded: bool | str | None = None,
        **loader: Any,
    ) -> Iterator[Any]:
        """Each sample of ``dataset`` once over all ranks, in order: for evaluation. Gradients are off in its body.

        Ranks may get different numbers of batches, even none: no collective may stand in the loop's body. Add up on
        each rank, and ``run.sum`` afterwards.
        """
        keywords = tuple(inspect.signature(self.batches).parameters)
        options = LoaderOptions(
            shuffle=False, fill=False, sample_rng=sample_rng, sharded=sharded, keywords=keywords
        )
        yield from self._evaluations.visit(
            self._preparation.test_data(dataset, global_batch, options, loader)
        )

    def log(self, *, over_ranks: bool = False, **numbers: float | torch.Tensor) -> None:
        """Numbers to show: in the progress, the records, ``rankup status`` and the loggers of ``rankup.init(log=…)``.

        Call it in the loop's body for a step, or after the inner loop for an epoch. They are rank 0's numbers, and
        cost no wait for the device; with ``over_ranks`` their means over all ranks, weighed by samples: a collective,
        in the loop's body. A number that ``Retention(metric=…)`` names is in the snapshots as well.
        """
        if over_ranks:
            numbers = {
                name: self.mean(value) if isinstance(value, torch.Tensor) else self.mean(float(value))
                for name, value in numbers.items()
            }
        context = self._context
        context.records.log(numbers, context.steps_reached)
        if self._best_by in numbers:
            best = numbers[self._best_by]
            self._context.metrics[self._best_by] = float(
                best.detach() if isinstance(best, torch.Tensor) else best
            )

    def save(self) -> None:
        """Save a snapshot now, and return when it is durable; for a loop that is left before its last epoch, which
        saves by itself. Where ``state_dict`` may be taken. A collective.
        """
        self._check_between_steps()
        self._enter("run.save")
        self._checkpointing.save_now()

    def save_model(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Write the model's ``state_dict``, whole and on the CPU, to one file, on rank 0: for
        ``model.load_state_dict(torch.load(path))`` on one process, without rankup. A collective: every rank calls it.

        A name that ends in ``.safetensors`` gives that format. ``model`` is needed where several were prepared. Raises
        RankupError, on all ranks, if the file cannot be written.
        """
        save_model(self._context, Path(path), model)

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

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of the gradient before clipping, at the last step that clipped."""
        return self._context.gradients.norm

    def forward_backward(
        self, model: nn.Module, loss: Callable[[Any, Any], torch.Tensor], x: Any, y: Any
    ) -> tuple[Any, Any]:
        """``loss(model(x), y)`` and its backward under every strategy, also a pipeline, where they are one call.

        (loss, output); (None, None) on ranks whose stage does not see them, whose ``run.batch.samples`` is 0.
        """
        return self._context.gradients.forward_backward(self._context.batch, model, loss, x, y)

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

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """All ranks' rows of ``tensor`` in sample order, on all ranks, with gradients: for losses that compare the
        samples of a global batch. ``tensor`` is (n, …), one row per sample. A collective: every rank calls it.

        In a training step its loss goes through ``run.backward``. Not with ``accumulate`` or ``any-world``, and not in
        the body of ``run.batches``, where ranks may have different numbers of batches.
        """
        run = self._context
        return gather(run.here, run.gradients, run.batch, tensor)

    @property
    def rows(self) -> torch.Tensor:
        """Which rows of what ``run.gather`` gives are this rank's: int64 (n,). A collective."""
        run = self._context
        return row_numbers(run.here, run.gradients, run.batch)

    def step(self, optimizer: Optimizer) -> bool:
        """After the last micro-batch of a step: clip, ``optimizer.step()``, ``zero_grad()``; True. Else nothing.

        False, too, where fp16 overflowed: the step is not taken, on any rank.
        """
        return self._context.gradients.step(self._context.batch, optimizer)

    # ------------------------------------------------------------- all ranks

    def sum(self, value: Number) -> Number:
        """The sum over all ranks, on all ranks. A collective: every rank calls it. Number or tensor, type kept.

        A rank whose share of a training batch is empty computes on a dummy batch: in the loop's body, add up
        ``run.batch.samples`` (0 there), or use ``run.mean``, which knows.
        """
        body_checks.check_sum(self._context)
        return reduce_sum(value, self._context.control)

    def mean(self, value: Number, count: int | None = None) -> float | torch.Tensor:
        """The mean over all ranks, weighed by ``count`` (in the loop's body: this rank's samples). A collective."""
        if count is None:
            if self._context.batch is None:
                raise RankupError(
                    "no-count", "run.mean(value, count) needs count= outside of a training step"
                )
            count = self._context.samples
        body_checks.check_sum(self._context)
        return reduce_mean(value, count, self._context.control)

    def first(self, per: str = "run", *, directory: str | Path | None = None) -> AbstractContextManager[None]:
        """``with run.first():`` rank 0 runs the body, then all others do; ``per="node"``: one process of each node.

        ``directory``: for downloads to it. One process in all goes first if all nodes share it, else one per node;
        under a file lock, so that two jobs do not fetch at once. The body must look whether the work is done.
        """
        self._enter("run.first")
        if directory is not None:
            return shared_first(Path(directory), self.world, self._patient)
        if per not in ("run", "node"):
            raise RankupError("bad-option", f"run.first({per!r}): per is 'run' or 'node'", exit_code=1)
        return one_first((self.world.rank if per == "run" else self.world.local_rank) == 0, self._patient)

    def _enter(self, what: str) -> None:
        """All ranks are on this line of the script, or it is an error."""
        if (control := self._context.control) is not None:
            control.enter(what)

    # ----------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Everything that this rank needs to go on from here. Tensors are the live ones: copy or save it before the
        next step. Take it in the loop's body after ``opt.step()``, or last thing behind the inner loop.
        """
        self._check_between_steps()
        parts = self._state_parts
        taken = state.collect(self._context, parts, shared=True, gradients=parts.pending.any_here())
        return {"tensors": taken.tensors, "rank_state": taken.rank_state, "metadata": taken.metadata}

    def _check_between_steps(self) -> None:
        """An error if a training cannot go on from the state at hand."""
        body_checks.check_buffers(self._context)
        if (batch := self._context.batch) is not None and not batch.last:
            raise RankupError(
                "mid-step",
                "the state is to be taken between two micro-batches of a step",
                hint="take it after the last one: `if run.batch.last: …`",
                exit_code=1,
            )

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what ``state_dict`` gave, after ``prepare`` and ``register`` and before the first step."""
        run, parts, rank_state = self._context, self._state_parts, saved["rank_state"]
        state.check(run, parts, saved["metadata"])
        state.restore(run, parts, saved["tensors"], rank_state, rank_state["registered"], saved["metadata"])
