"""``rankup.init()`` and ``Run``: the three-line library.

run = rankup.init()
model, opt, data = run.prepare(model, lambda p: Adam(p, lr=1e-3), dataset, global_batch=256)
for x, y in run.steps(data, epochs=90):
    loss = loss_fn(model(x), y); loss.backward(); opt.step(); opt.zero_grad()
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import IterableDataset

from rankup.core.rundir import RunDir
from rankup.errors import RankupError
from rankup.runtime import seed
from rankup.runtime.argument_types import check_types
from rankup.runtime.checkpointing import state, stop
from rankup.runtime.checkpointing.checkpointing import Checkpointing, Snapshots
from rankup.runtime.checkpointing.frozen import Frozen
from rankup.runtime.checkpointing.registered import Values, as_stateful
from rankup.runtime.checkpointing.registered_state import METER
from rankup.runtime.checkpointing.resume_settings import ResumeSettings
from rankup.runtime.checkpointing.save_model import save_model
from rankup.runtime.checkpointing.state import Stateful
from rankup.runtime.checkpointing.training_folder import check_name
from rankup.runtime.data.batch_size_check import check_shares
from rankup.runtime.data.feeds import Data, LoaderOptions, RankContext, make_loader
from rankup.runtime.data.identity import SameDataCheck
from rankup.runtime.data.loader_options import check_main_guard
from rankup.runtime.data.loaders import Batch, DataFeed, DatasetFeed, ResidentDataFeed
from rankup.runtime.device import choose_device, same_bits_everywhere
from rankup.runtime.distributed import buffers
from rankup.runtime.distributed.control import Control
from rankup.runtime.distributed.gather import gather, row_numbers
from rankup.runtime.distributed.groups import start_groups
from rankup.runtime.distributed.reduce import Number, reduce_mean, reduce_sum
from rankup.runtime.distributed.replicas import Replicas
from rankup.runtime.distributed.sections import one_first, shared_first
from rankup.runtime.loop import body_checks
from rankup.runtime.loop.accumulation import PendingGradients
from rankup.runtime.loop.closures import check_closures, share_losses
from rankup.runtime.loop.epochs import Epoch
from rankup.runtime.loop.evaluation import Evaluations
from rankup.runtime.loop.gradients import Gradients
from rankup.runtime.loop.meter import Meter
from rankup.runtime.loop.nan_watch import NanWatch
from rankup.runtime.loop.optimizer import OptimizerSource, build_optimizer
from rankup.runtime.loop.precision import Precision, make_precision
from rankup.runtime.loop.several_models import Models, container, each, like, parts_of
from rankup.runtime.model_transforms import Adaptations
from rankup.runtime.select_strategy import choose_strategy
from rankup.runtime.uncaught import install_error_display
from rankup.strategies import Strategy
from rankup.strategies.batch_plan import length_of
from rankup.world import World


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
    resumes from its own snapshots.

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
            "timeout": (timeout, (timedelta,), "datetime.timedelta(minutes=10)"),
        },
    )
    check_name(name)
    check_main_guard()
    world = World.detect(os.environ)
    place = choose_device(world, device)
    made_precision = make_precision(precision, place)
    chosen = choose_strategy(strategy, world, exact=exact, virtual_shards=virtual_shards)
    if chosen.exact == "any-world":
        same_bits_everywhere(place)
    if made_precision.scaled:
        chosen.check("fp16")
    return Run(
        world,
        place,
        made_precision,
        chosen,
        seed,
        snapshots,
        timeout,
        name,
    )


class Run:
    """One training run on this process. Made by ``rankup.init``; see there."""

    def __init__(
        self,
        world: World,
        device: torch.device,
        precision: Precision,
        strategy: Strategy,
        seed_: int,
        snapshots: Snapshots | None,
        timeout: timedelta,
        name: str = "",
    ) -> None:
        self.world = world
        self.name = name
        self.device = device
        self.precision = precision
        self.strategy = strategy
        self.seed = seed_
        self.directory = RunDir.from_environment()
        groups = start_groups(world, device, timeout)
        self._control, self._patient = groups.control, groups.patient
        self._plan = strategy.batch_plan(world.rank, world.world_size)
        self.replicas = self._plan.replicas
        # Where all ranks work on the same batch, its feed is that of one process.
        control = None if self._plan.shared else self._control
        self._here = RankContext(self._plan, seed_, device, precision, control)
        seed.seed_everything(seed_)
        self.models: list[nn.Module] = []  # as the user made them; what prepare returned may wrap them
        self.optimizers: list[Optimizer] = []
        self.prepared: list[tuple[nn.Module, Optimizer | None]] = []  # the two, as prepare got them together
        watch = stop.watch(self.directory, world.rank, self._control)
        self.pending = PendingGradients(self, self._control)
        self._same_data = SameDataCheck(seed_, self._control)
        self.frozen = Frozen(self)
        self.replica_checks = Replicas(self, self._control)
        self._survival = Checkpointing(self, snapshots, watch, self._control)
        self.settings = ResumeSettings(self, (snapshots or Snapshots()).in_force().resume_with)
        self.evaluations = Evaluations(self, self._survival)
        self.global_step = 0
        self.steps_reached = 0  # one more than global_step from the moment a step's last batch is handed out
        # Yours: what you put here stands in the snapshots, and can choose the best.
        self.metrics: dict[str, float] = {}
        self.registered: dict[str, Stateful] = {}
        self.values = Values()  # the simple ones of what was registered
        self.nan_watch = NanWatch(self)
        self.meter = Meter(self)
        self.registered[METER] = self.meter
        self.batch: Batch | None = None  # the one that the loop's body has now
        self.buffers_differ = False
        self.feeds: list[DataFeed] = []  # what prepare made, in its order
        self.gradients = Gradients(
            self.models, strategy, self.replicas, device, self._control, scaled=precision.scaled
        )
        if self.gradients.scaler is not None:
            self.register(loss_scale=self.gradients.scaler)

    # ------------------------------------------------------------------ who

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0: the one that prints and writes."""
        return self.world.rank == 0

    def print(self, *values: object) -> None:
        """``print`` on rank 0 alone."""
        if self.is_main:
            print(*values, flush=True)

    # -------------------------------------------------------------- prepare

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
          ``sync_batchnorm``, wants ``run.backward(loss)`` and ``run.step(opt)`` in the loop.
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
        if accumulate < 1:
            raise RankupError("bad-accumulate", f"accumulate must be at least 1, got {accumulate}")
        if accumulate > 1:
            self.strategy.check("accumulate")
        if clip is not None:
            self.strategy.check("clip")
        if isinstance(dataset, IterableDataset):
            self.strategy.check("stream")
        if dataset is not None and self.feeds and accumulate != self.gradients.accumulate:
            raise RankupError(
                "two-accumulates",
                f"accumulate={accumulate} here, but {self.gradients.accumulate} for the data before",
            )
        parts = parts_of(model, self.strategy)
        names = {id(parameter): name for name, parameter in container(model, parts).named_parameters()}
        adaptations = Adaptations(channels_last, sync_batchnorm, compile)
        adaptations.check(self.strategy, accumulate)

        def adapted(part: nn.Module) -> nn.Module:
            held = self.precision.apply(self.strategy.part(part), self.device)
            return adaptations.apply(held, self.device, self.world.world_size)

        def wrap(part: nn.Module) -> nn.Module:
            return self.strategy.wrap(part, self.device, find_unused_parameters=find_unused_parameters)

        parts = each(adapted, parts)
        wrapped = like(model, each(wrap, parts))
        inner = container(model, parts)
        self.models.append(inner)
        self.gradients.weigh_losses |= sync_batchnorm and self.replicas > 1
        opt = None
        if optimizer is not None:
            opt = build_optimizer(optimizer, names, inner)
            check_closures(opt, self.strategy, self.gradients, accumulate=accumulate, clip=clip)
            if self.replicas > 1:
                share_losses(opt, self.gradients)
            wrapped, opt = self.strategy.setup_optimizer(wrapped, opt, clip)
            self.optimizers.append(opt)
            if clip is not None:
                self.gradients.clips[id(opt)] = clip
        self.prepared.append((inner, opt))
        self.settings.note_prepared(clip=clip, sync_batchnorm=sync_batchnorm)
        feed = None
        if dataset is not None:
            if global_batch is None and batch_sampler is None:
                raise RankupError(
                    "no-global-batch",
                    "prepare(…, dataset) needs global_batch=, the batch of all processes together",
                    hint=f"global_batch={32 * self.world.world_size} is 32 per process here",
                )
            self.gradients.accumulate = accumulate
            self._same_data.check(dataset, loader)
            keywords = tuple(inspect.signature(self.prepare).parameters)
            options = LoaderOptions(
                shuffle, accumulate, True, sample_rng, sharded, drop_last, sampler, batch_sampler, keywords
            )
            feed = make_loader(dataset, self._here, global_batch, options, loader)
            if isinstance(feed, (DatasetFeed, ResidentDataFeed)):
                check_shares(inner, feed.sharding, accumulate, drop_last)
                if said := feed.sharding.left_out():
                    self.print(said)
            self.feeds.append(feed)
            self.settings.note_data(dataset, loader, shuffle=shuffle, sample_rng=sample_rng)
        elif loader or global_batch is not None:
            raise RankupError("no-dataset", "prepare got loader arguments but no data set")
        stream = 0 if self.strategy.shared_rng else self.world.rank
        seed.seed_everything(seed.derive(self.seed, "rank", stream))
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
            if name in self.registered:
                raise RankupError("registered-twice", f"run.register({name}=…): the name is taken")
            stateful = as_stateful(name, thing, self.values, self.device)
            if per_rank:
                stateful.per_rank = True  # type: ignore[attr-defined]
            if getattr(stateful, "per_rank", False) and not getattr(stateful, "timed", False):
                self.strategy.check("per_rank_state", name=name)
            self.registered[name] = stateful

    # -------------------------------------------------------------- the loop

    def epochs(self, epochs: int, data: DataFeed | None = None) -> Iterator[Epoch]:
        """``for epoch in run.epochs(90): for x, y in epoch: …``; what follows the inner loop runs once per epoch."""
        return self._epochs(data, epochs, None)

    def steps(
        self, data: DataFeed | None, *, epochs: int | None = None, steps: int | None = None
    ) -> Iterator[Any]:
        """This rank's batches of ``epochs`` epochs, one after another: the flat form of ``run.epochs``. Or of ``steps``
        steps, over as many epochs as that takes. Both count from the beginning, also after a resume."""
        if (epochs is None) == (steps is None):
            raise RankupError("epochs-or-steps", "run.steps takes epochs=, or steps=, and one of them")
        for epoch in self._epochs(data, epochs, steps):
            yield from epoch.batches(steps)

    def _epochs(self, data: DataFeed | None, epochs: int | None, steps: int | None) -> Iterator[Epoch]:
        feed = data if data is not None else (self.feeds[-1] if self.feeds else None)
        if not hasattr(feed, "position"):
            raise RankupError(
                "not-prepared",
                f"the loop needs the data that prepare returned, not {type(feed).__name__}",
                hint="model, opt, data = run.prepare(model, opt, dataset, global_batch=…)",
            )
        assert feed is not None
        unit, goal = ("epochs", epochs) if epochs is not None else ("steps", steps)
        if not isinstance(goal, int) or goal < 1:
            raise RankupError("bad-length", f"{unit}={goal!r}: at least 1 is needed")
        position = feed.position
        self.evaluations.overtake()
        with self._survival.loop(feed, unit, goal):
            while (position.epoch if epochs is not None else position.total) < goal:
                epoch = Epoch(self, feed, position.epoch, self._survival)
                try:
                    yield epoch
                finally:
                    epoch.close()
                if steps is not None and position.total >= steps and not position.ended:
                    return  # in the middle of an epoch
                position.end_epoch()
                self._survival.epoch_done()

    def begin_batch(self, batch: Batch) -> None:
        """A training batch is about to be handed out."""
        if self.evaluations.any_open:
            self.evaluations.overtake()
        self.batch = batch
        if batch.last:
            self.steps_reached = self.global_step + 1

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
        self.settle_buffers()
        size = self.strategy.evaluation_batch(global_batch, partial(length_of, dataset), self._plan)
        self._same_data.check(dataset, loader)
        names = tuple(inspect.signature(self.batches).parameters)
        options = LoaderOptions(
            shuffle=False, fill=False, sample_rng=sample_rng, sharded=sharded, keywords=names
        )
        feed = make_loader(dataset, self._here, size, options, loader)
        yield from self.evaluations.visit(feed)

    def save(self) -> None:
        """Save a snapshot now, and return when it is durable; for a loop that is left before its last epoch, which
        saves by itself. Where ``state_dict`` may be taken. A collective.
        """
        self._check_between_steps()
        self._enter("run.save")
        self._survival.save_now()

    def save_model(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Write the model's ``state_dict``, whole and on the CPU, to one file, on rank 0: for
        ``model.load_state_dict(torch.load(path))`` on one process, without rankup. A collective: every rank calls it.

        A name that ends in ``.safetensors`` gives that format. ``model`` is needed where several were prepared. Raises
        RankupError, on all ranks, if the file cannot be written.
        """
        save_model(self, Path(path), model)

    @property
    def evaluating(self) -> bool:
        """Whether the code that runs now is the body of a ``run.batches``."""
        return self.evaluations.any_open

    @property
    def control(self) -> Control | None:
        """Of the small numbers that ranks exchange; None for one process."""
        return self._control

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of the gradient before clipping, at the last step that clipped."""
        return self.gradients.norm

    @property
    def samples(self) -> int:
        """Samples of the batch at hand that this rank answers for: those to count, so that a sum over ranks is right.

        0 on a dummy batch, and on all ranks but one where they work on the same batch.
        """
        return self.batch.samples if self.batch is not None and self._plan.reports else 0

    def forward_backward(
        self, model: nn.Module, loss: Callable[[Any, Any], torch.Tensor], x: Any, y: Any
    ) -> tuple[Any, Any]:
        """``loss(model(x), y)`` and its backward under every strategy, also a pipeline, where they are one call.

        (loss, output); (None, None) on ranks whose stage does not see them, which have ``samples`` 0.
        """
        return self.gradients.forward_backward(self.batch, model, loss, x, y)

    def backward(
        self, loss: torch.Tensor, *, count: float | torch.Tensor | None = None, reduction: str = "mean"
    ) -> None:
        """``loss.backward()``, weighed so that the step is that of the global batch.

        ``loss`` is the mean over this rank's samples of the (micro-)batch; or over ``count`` units (tokens, targets
        that are not ignored, the sum of their class weights), and then the step is that of the mean over the units of
        all ranks. ``reduction="sum"``: a sum over this rank's samples, whose plain loop sums over the global batch.
        ``reduction="global"``: the loss of the whole global batch, computed on every rank from ``run.gather``.
        """
        self.nan_watch.see("the loss", loss)
        self.gradients.backward(self.batch, loss, count, reduction)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """All ranks' rows of ``tensor`` in sample order, on all ranks, with gradients: for losses that compare the
        samples of a global batch. ``tensor`` is (n, …), one row per sample. A collective: every rank calls it.

        In a training step its loss goes through ``run.backward``. Not with ``accumulate`` or ``any-world``, and not in
        the body of ``run.batches``, where ranks may have different numbers of batches.
        """
        return gather(self._here, self.gradients, self.batch, tensor)

    @property
    def rows(self) -> torch.Tensor:
        """Which rows of what ``run.gather`` gives are this rank's: int64 (n,). A collective."""
        return row_numbers(self._here, self.gradients, self.batch)

    def step(self, optimizer: Optimizer) -> bool:
        """After the last micro-batch of a step: clip, ``optimizer.step()``, ``zero_grad()``; True. Else nothing.

        False, too, where fp16 overflowed: the step is not taken, on any rank.
        """
        return self.gradients.step(self.batch, optimizer)

    # ------------------------------------------------------------- all ranks

    def sum(self, value: Number) -> Number:
        """The sum over all ranks, on all ranks. A collective: every rank calls it. Number or tensor, type kept.

        A rank whose share of a training batch is empty computes on a dummy batch: in the loop's body, add up
        ``run.batch.samples`` (0 there), or use ``run.mean``, which knows.
        """
        body_checks.check_sum(self)
        return reduce_sum(value, self._control)

    def mean(self, value: Number, count: int | None = None) -> float | torch.Tensor:
        """The mean over all ranks, weighed by ``count`` (in the loop's body: this rank's samples). A collective."""
        if count is None:
            if self.batch is None:
                raise RankupError(
                    "no-count", "run.mean(value, count) needs count= outside of a training step"
                )
            count = self.samples
        body_checks.check_sum(self)
        return reduce_mean(value, count, self._control)

    def main_first(self) -> AbstractContextManager[None]:
        """``with run.main_first():`` rank 0 runs the body, then all others do."""
        self._enter("run.main_first")
        return one_first(self.world.rank == 0, self._patient)

    def node_first(self) -> AbstractContextManager[None]:
        """``with run.node_first():`` one process of each node runs the body, then all others do."""
        self._enter("run.node_first")
        return one_first(self.world.local_rank == 0, self._patient)

    def shared_first(self, directory: str | Path) -> AbstractContextManager[None]:
        """For downloads to ``directory``: one process in all first where all nodes share it, else one per node.

        Under a file lock, so that two jobs do not fetch at once. The body must look whether the work is done.
        """
        self._enter("run.shared_first")
        return shared_first(Path(directory), self.world, self._patient)

    def _enter(self, what: str) -> None:
        """All ranks are on this line of the script, or it is an error."""
        if self._control is not None:
            self._control.enter(what)

    def settle_buffers(self) -> None:
        """Make the ranks' BatchNorm statistics one. The runtime calls it after an epoch and before an evaluation."""
        if self.buffers_differ and self.replicas > 1:
            for model in self.models:
                buffers.restore(buffers.averaged_buffers(model, self.world.world_size))
        self.buffers_differ = False

    # ----------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Everything that this rank needs to go on from here. Tensors are the live ones: copy or save it before the
        next step. Take it in the loop's body after ``opt.step()``, or last thing behind the inner loop.
        """
        self._check_between_steps()
        taken = state.collect(self, kept=True, gradients=self.pending.any_here())
        return {"tensors": taken.tensors, "own": taken.own, "facts": taken.facts}

    def _check_between_steps(self) -> None:
        """An error if a training cannot go on from the state at hand."""
        body_checks.check_buffers(self)
        if self.batch is not None and not self.batch.last:
            raise RankupError(
                "mid-step",
                "the state is to be taken between two micro-batches of a step",
                hint="take it after the last one: `if run.batch.last: …`",
                exit_code=1,
            )

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what ``state_dict`` gave, after ``prepare`` and ``register`` and before the first step."""
        state.check(self, saved["facts"])
        state.restore(self, saved["tensors"], saved["own"], saved["own"]["kept"], saved["facts"])
