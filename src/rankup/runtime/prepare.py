"""``run.prepare`` and ``run.batches``: bring a model, its optimizer and its data to this rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypedDict

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import IterableDataset

from rankup.errors import RankupError, check_types
from rankup.runtime import seed
from rankup.runtime.checkpointing.settings import ResumeSettings
from rankup.runtime.context import RunContext
from rankup.runtime.data.batches import DataFeed
from rankup.runtime.data.feeds import Data, LoaderOptions, make_loader
from rankup.runtime.data.identity import SameDataCheck
from rankup.runtime.data.loader_options import check_names
from rankup.runtime.data.loaders import DatasetFeed
from rankup.runtime.data.resident import ResidentDataFeed
from rankup.runtime.data.sharding import check_shares
from rankup.runtime.loop.closures import check_closures, share_losses
from rankup.runtime.loop.optimizer import OptimizerSource, build_optimizer
from rankup.runtime.model_transforms import Adaptations, Models, container, each, like, parts_of
from rankup.strategies.batch_plan import length_of


class LoaderArguments(TypedDict, total=False):
    """Arguments of torch's DataLoader that pass through ``run.prepare`` and ``run.batches``."""

    num_workers: int
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    pin_memory_device: str
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    prefetch_factor: int | None
    persistent_workers: bool


class PrepareArguments(LoaderArguments, total=False):
    """The keywords of ``run.prepare``, for a type checker."""

    global_batch: int | None
    shuffle: bool
    accumulate: int
    clip: float | None
    find_unused_parameters: bool
    channels_last: bool
    sync_batchnorm: bool
    compile: bool
    sample_rng: bool | None
    sharded: bool | str | None
    drop_last: bool | None
    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None


_PREPARE = tuple(PrepareArguments.__annotations__)
_BATCHES = ("dataset", "global_batch", "sample_rng", "sharded")


def _check_initialized(model: nn.Module) -> None:
    """An error for a lazy module, whose parameters have no shape before its first forward."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise RankupError(
                "uninitialized-parameter",
                f"{name} has no shape yet: its module is a lazy one, which gets it in its first forward",
                hint="call the model once before prepare, with a batch of zeros: model(torch.zeros(2, …))",
                exit_code=1,
            )


class Preparation:
    """Of one run: what one call of ``run.prepare`` needs to know about earlier ones."""

    def __init__(self, run: RunContext, settings: ResumeSettings, same_data: SameDataCheck) -> None:
        self._run = run
        self._settings = settings
        self._same_data = same_data
        self._returned: list[tuple[Any, nn.Module]] = []  # what the loop calls, and the model under it

    def prepare(
        self,
        model: Models,
        optimizer: OptimizerSource | None,
        dataset: Data | None,
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
    ) -> tuple[Any, Optimizer | None, DataFeed | None]:
        """See ``Run.prepare``."""
        check_types(
            "run.prepare",
            {
                "global_batch": (global_batch, (int, type(None)), "256"),
                "accumulate": (accumulate, (int,), "4"),
                "clip": (clip, (int, float, type(None)), "1.0"),
            },
        )
        order = LoaderOptions(
            shuffle, accumulate, True, sample_rng, sharded, drop_last, sampler, batch_sampler, _PREPARE
        )
        self._check(dataset, global_batch, order, loader, clip=clip)
        if (
            optimizer is None
            and dataset is not None
            and (earlier := self._prepared_before(model)) is not None
        ):
            return model, None, self._training_data(dataset, global_batch, order, loader, earlier)
        wrapped, opt, inner = self._model(
            model,
            optimizer,
            Adaptations(channels_last, sync_batchnorm, compile),
            accumulate=accumulate,
            clip=clip,
            find_unused_parameters=find_unused_parameters,
        )
        feed = None
        if dataset is not None:
            feed = self._training_data(dataset, global_batch, order, loader, inner)
        self._separate_ranks()
        return wrapped, opt, feed

    def _model(
        self,
        model: Models,
        optimizer: OptimizerSource | None,
        adaptations: Adaptations,
        *,
        accumulate: int,
        clip: float | None,
        find_unused_parameters: bool,
    ) -> tuple[Any, Optimizer | None, nn.Module]:
        """(what the loop calls, its optimizer, the model under both)."""
        run, strategy = self._run, self._run.strategy
        parts = parts_of(model, strategy)
        _check_initialized(container(model, parts))
        names = {id(parameter): name for name, parameter in container(model, parts).named_parameters()}
        adaptations.check(strategy, accumulate)

        def adapted(part: nn.Module) -> nn.Module:
            held = run.precision.apply(strategy.part(part), run.device)
            return adaptations.apply(held, run.device, run.world.world_size)

        def wrap(part: nn.Module) -> nn.Module:
            return strategy.wrap(part, run.device, find_unused_parameters=find_unused_parameters)

        parts = each(adapted, parts)
        wrapped = like(model, each(wrap, parts))
        inner = container(model, parts)
        run.models.append(inner)
        run.gradients.weigh_losses |= adaptations.sync_batchnorm and run.replicas > 1
        opt = None
        if optimizer is not None:
            opt = build_optimizer(optimizer, names, inner)
            check_closures(opt, strategy, run.gradients, accumulate=accumulate, clip=clip)
            if run.replicas > 1:
                share_losses(opt, run.gradients)
            wrapped, opt = strategy.setup_optimizer(wrapped, opt, clip)
            run.optimizers.append(opt)
            if clip is not None:
                run.gradients.clips[id(opt)] = clip
        run.prepared.append((inner, opt))
        self._returned.append((wrapped, inner))
        self._settings.note_prepared(opt, clip=clip, sync_batchnorm=adaptations.sync_batchnorm)
        return wrapped, opt, inner

    def _prepared_before(self, model: Models) -> nn.Module | None:
        """The model under one that was prepared: for another stage of its training only the data is new."""
        for returned, inner in self._returned:
            if model is returned or model is inner:
                return inner
        return None

    def _check(
        self,
        dataset: Data | None,
        global_batch: int | None,
        options: LoaderOptions,
        loader: dict[str, Any],
        *,
        clip: float | None,
    ) -> None:
        """An error, before anything is changed, for arguments that contradict each other or the run."""
        run, accumulate = self._run, options.parts
        check_names(loader, options.keywords)
        if accumulate < 1:
            raise RankupError("bad-accumulate", f"accumulate must be at least 1, got {accumulate}")
        if accumulate > 1:
            run.strategy.check("accumulate")
        if clip is not None:
            run.strategy.check("clip")
        if isinstance(dataset, IterableDataset):
            run.strategy.check("stream")
        if dataset is None:
            if loader or global_batch is not None:
                raise RankupError("no-dataset", "prepare got loader arguments but no data set")
            return
        if run.feeds and accumulate != run.gradients.accumulate:
            raise RankupError(
                "two-accumulates",
                f"accumulate={accumulate} here, but {run.gradients.accumulate} for the data before",
            )
        if global_batch is None and options.batch_sampler is None:
            raise RankupError(
                "no-global-batch",
                "prepare(…, dataset) needs global_batch=, the batch of all processes together",
                hint=f"global_batch={32 * run.world.world_size} is 32 per process here",
            )

    def _training_data(
        self,
        dataset: Data,
        global_batch: int | None,
        options: LoaderOptions,
        loader: dict[str, Any],
        inner: nn.Module,
    ) -> DataFeed:
        """What ``run.steps`` and ``run.epochs`` go over; ``inner`` is trained on it."""
        run = self._run
        run.gradients.accumulate = options.parts
        self._same_data.check(dataset, loader)
        feed = make_loader(dataset, run.here, global_batch, options, loader)
        self._same_data.watch(feed, dataset, loader)
        if isinstance(feed, (DatasetFeed, ResidentDataFeed)):
            check_shares(inner, feed.sharding, options.parts, options.drop_last)
            if said := feed.sharding.left_out():
                run.print(said)
        run.feeds.append(feed)
        self._settings.note_data(dataset, loader, shuffle=options.shuffle, sample_rng=options.sample_rng)
        return feed

    def test_data(
        self,
        dataset: Data,
        global_batch: int,
        sample_rng: bool | None,
        sharded: bool | str | None,
        loader: Mapping[str, Any],
    ) -> DataFeed:
        """What ``run.batches`` goes over."""
        run, loader = self._run, dict(loader)
        options = LoaderOptions(
            shuffle=False, fill=False, sample_rng=sample_rng, sharded=sharded, keywords=_BATCHES
        )
        run.settle_buffers()
        size = run.strategy.evaluation_batch(global_batch, partial(length_of, dataset), run.plan)
        self._same_data.check(dataset, loader)
        return make_loader(dataset, run.here, size, options, loader)

    def _separate_ranks(self) -> None:
        """The models are equal on all ranks. From now on each rank draws other numbers, so that dropout differs."""
        run = self._run
        stream = 0 if run.strategy.shared_rng else run.world.rank
        seed.seed_everything(seed.derive(run.seed, "rank", stream))
