"""``rankup.init()``: find out who this process is, meet the others, and make the ``Run``.

It chooses once: the device of this process, by its local rank and never its global one, and the strategy, by the user's
choice and the number of processes.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch

from rankup.core.rundir import RunDir
from rankup.core.whole_lines import watch_lines
from rankup.errors import RankupError, check_types
from rankup.runtime.api import Run
from rankup.runtime.call_site import install_error_display
from rankup.runtime.checkpointing import stop
from rankup.runtime.checkpointing.policy import Snapshots
from rankup.runtime.checkpointing.stages import check_name
from rankup.runtime.context import TRACE_VARIABLE, RunContext
from rankup.runtime.data.loader_options import check_main_guard
from rankup.runtime.distributed.groups import start_groups
from rankup.runtime.loop.precision import make_precision
from rankup.runtime.seed import seed_everything
from rankup.strategies import (
    AUTO,
    EXACT,
    STRATEGIES,
    Strategy,
    make_exact_strategy,
    make_strategy,
    names_for_scripts,
)
from rankup.world import ACCELERATORS, BACKENDS, World


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

    Chooses the device by local rank, the backend by device (nccl, xccl or gloo), and seeds every generator with
    ``seed``, equally on all ranks, so that they build the same model. ``device``: auto, cuda, xpu, cpu.
    ``precision``: fp32, tf32, bf16, fp16, fp64. ``strategy``: auto (ddp for several processes, none for one), none,
    ddp, fsdp, or one that was made. ``exact``: ``same-world`` is exact to the bit over interruptions; ``any-world``
    on other numbers of processes too, up to ``virtual_shards`` of them (docs/explanation/exactness.md). ``timeout``
    is for one collective. ``snapshots`` says when to save, where there is a run directory: every ten minutes, at the
    end, and when told to stop. Several trainings of one process (folds, learning rates) are told apart by their
    order, or by ``name``: each resumes from its own snapshots. ``log``: where else the numbers of ``run.log`` go, on
    rank 0: ``"csv"``, ``"tensorboard"``, ``"wandb"``, ``"mlflow"``, or several with commas between them.

    Raises RankupError for a contradictory environment, an unreachable rendezvous, or an unknown name.
    """
    install_error_display()
    watch_lines()
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
    loggers: tuple[str, ...] = ()
    if log:
        from rankup.runtime.loggers.base import logger_names

        loggers = logger_names(log)
    check_main_guard()
    world = World.detect(os.environ)
    if TRACE_VARIABLE in os.environ:
        from rankup.runtime.tracing.written_files import watch_files

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


def choose_device(world: World, wanted: str) -> torch.device:
    """``auto``: a GPU if torch sees one, else the CPU. ``cuda``, ``xpu`` and ``cpu`` as they say.

    ``local_rank % visible`` is right both where every process sees all GPUs of its node and where each sees only its
    own. The current device is set, so that nothing lands on GPU 0 by accident.
    """
    if wanted not in ("auto", *BACKENDS):
        raise RankupError(
            "unknown-device", f"there is no device {wanted!r}", hint=f"one of: auto, {', '.join(BACKENDS)}"
        )
    modules: dict[str, Any] = {kind: torch.get_device_module(kind) for kind in ACCELERATORS}
    seen = [kind for kind in ACCELERATORS if modules[kind].is_available()]
    if wanted == "cpu" or (wanted == "auto" and not seen):
        return torch.device("cpu")
    kind = seen[0] if wanted == "auto" else wanted
    if kind not in seen:
        raise RankupError(
            f"no-{kind}",
            f"{kind} was asked for, but torch sees no GPU",
            context=f"torch {torch.__version__}",
            hint="is this a CPU build of torch, or a node without GPUs? `rankup world` shows what is visible",
        )
    device = torch.device(kind, world.local_rank % modules[kind].device_count())
    modules[kind].set_device(device)
    return device


def same_bits_everywhere(device: torch.device) -> None:
    """From now on use kernels that give the same bits on any number of processes."""
    if device.type == "cpu":
        # A kernel's sum depends on its number of threads, and every process has at least one.
        torch.set_num_threads(1)
    else:
        deterministic_kernels()


def deterministic_kernels() -> None:
    """From now on use kernels whose bits are the same in every run; call it before the first matrix product.

    Torch warns of an operation that has no such kernel. That may be harmless (a pool whose windows do not overlap):
    ``rankup verify`` compares the bits.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def choose_strategy(
    wanted: str | Strategy, world: World, *, exact: str = "same-world", virtual_shards: int = 4
) -> Strategy:
    """``auto``, a name for scripts, or a strategy that a workload's loop has made; or the one that ``exact`` requires.

    With one process there is nothing to average, shard or pipeline: every strategy except dp is ``none``.
    """
    if exact not in EXACT:
        raise RankupError(
            "unknown-exact", f"there is no exactness {exact!r}", hint=f"one of {', '.join(EXACT)}"
        )
    if EXACT[exact]:
        return make_exact_strategy(
            exact,
            virtual_shards=virtual_shards,
            rank=world.rank,
            world_size=world.world_size,
            instead_of=wanted if isinstance(wanted, str) else wanted.name,
        )
    if isinstance(wanted, str):
        if wanted == "auto":
            wanted = AUTO if world.world_size > 1 else "none"
        if wanted in STRATEGIES and not STRATEGIES[wanted].for_scripts:
            raise RankupError(
                "strategy-for-workloads",
                f"strategy {wanted} needs a workload: it changes more than a script's own loop can know",
                hint=f"in a script: {', '.join(names_for_scripts())}; or "
                f"`rankup train module:Class --strategy {wanted}`",
            )
        wanted = make_strategy(wanted)
    if wanted.one_process and world.world_size > 1:
        raise RankupError(
            "strategy-without-sync",
            f"strategy {wanted.name} would train {world.world_size} models that never meet",
            hint="strategy ddp or auto, or one process",
        )
    if world.world_size == 1 and not wanted.one_process:
        return make_strategy("none")
    return wanted
