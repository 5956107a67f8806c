"""``rankup.init()``: find out who this process is, meet the others, and make the ``Run``."""

from __future__ import annotations

import os
from datetime import timedelta

from rankup.core.rundir import RunDir
from rankup.runtime.api import Run
from rankup.runtime.argument_types import check_types
from rankup.runtime.call_site import install_error_display
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.stages import check_name
from rankup.runtime.choices import choose_device, choose_strategy, same_bits_everywhere
from rankup.runtime.context import RunContext
from rankup.runtime.data.loader_options import check_main_guard
from rankup.runtime.distributed.groups import start_groups
from rankup.runtime.loggers.base import logger_names
from rankup.runtime.loop.precision import make_precision
from rankup.runtime.seed import seed_everything
from rankup.runtime.tracing.written_files import watch_files
from rankup.strategies import Strategy
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
    watch_files(world.rank)
    place = choose_device(world, device)
    computing = make_precision(precision, place)
    chosen = choose_strategy(strategy, world, exact=exact, virtual_shards=virtual_shards)
    if chosen.exact == "any-world":
        same_bits_everywhere(place)
    if computing.scaled:
        chosen.check("fp16")
    control = start_groups(world, place, timeout).control
    seed_everything(seed)
    folder = RunDir.from_environment()
    context = RunContext(
        world,
        place,
        computing,
        chosen,
        seed,
        control,
        name=name,
        directory=folder,
        loggers=loggers,
        best_by=(snapshots or Snapshots()).keep.metric,
    )
    return Run(context, snapshots, stop.watch(folder, world.rank, control))
