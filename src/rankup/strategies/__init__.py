"""How one model becomes the model of many processes. One small file per strategy, chosen by name.

To add one, write a file with a class that inherits from ``base.Strategy``, and add a row to ``STRATEGIES``. This file
loads no torch: the command line reads the table, too.

| module | what |
|---|---|
| ``base`` | ``Strategy``: the protocol, with the answers of one process |
| ``batch_plan`` | how a global batch is divided, and which rank reports |
| ``none`` | one process |
| ``ddp`` | a replica on every rank |
| ``fsdp`` | a shard of every parameter on every rank |
| ``any_world`` | the same bits on any number of processes |
| ``call_through`` | the model stays the user's object under DDP |
| ``replicas`` | ranks start from one model |
| ``weights`` | gradients weighted if ranks hold different counts; parameters that only a dummy batch has used |
| ``buckets`` | the buckets of DDP |
| ``changes`` | what tells that a model has changed, without a walk |
| ``gradient_hooks`` | hooks of a script on gradients that are not reduced yet |
| ``ordered_sum`` | sums over virtual shards, in the same order on any number of ranks |
| ``shard_buffers`` | buffers of models that are computed in virtual shards |
| ``fsdp_parameters`` | the units of an FSDP model, and the parameters of each |
| ``fsdp_units`` | what the units of FSDP gather and reduce |
| ``block_order`` | ranks must run the same blocks in the same order |
| ``clipping`` | the norm of a gradient that is sharded |
| ``sharded_numbers`` | numbers that a script or an optimizer reads from sharded tensors |
| ``parameter_groups`` | parameter groups added during a training |
| ``inner_optimizers`` | optimizers that hold another one |
| ``state`` | model and optimizer by parameter names, whatever the strategy |
| ``experimental`` | tensor and pipeline parallelism, threads in one process, DeepSpeed: for workloads alone |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rankup.core.registry import load, target_of

if TYPE_CHECKING:
    from rankup.strategies.base import Strategy


class StrategyRow(NamedTuple):
    """What is known about a strategy without torch; ``options`` and ``refuses`` are fields of ``TrainOptions``."""

    target: str  # package.module:Class
    for_scripts: bool = False  # serves a plain loss.backward() and opt.step(); the others require a workload
    one_process: bool = False  # never trains on several processes
    options: tuple[str, ...] = ()  # of this strategy; its class takes them as arguments
    members: Mapping[str, str] = {}  # argument of its class → member of the workload that is passed for it
    refuses: tuple[str, ...] = ()  # options, or "option=value", that cannot be used with it


STRATEGIES = {
    "none": StrategyRow(
        "rankup.strategies.none:NoStrategy", for_scripts=True, one_process=True, refuses=("sync_batchnorm",)
    ),
    "dp": StrategyRow(
        "rankup.strategies.experimental.dp:DP", one_process=True, refuses=("compile", "sync_batchnorm")
    ),
    "ddp": StrategyRow("rankup.strategies.ddp:DDP", for_scripts=True, options=("static_graph",)),
    "fsdp": StrategyRow(
        "rankup.strategies.fsdp:FSDP", for_scripts=True, options=("shard_size",), refuses=("channels_last",)
    ),
    "tp": StrategyRow(
        "rankup.strategies.experimental.tp:TP",
        members={"plan": "tensor_parallel_plan"},
        refuses=("sync_batchnorm",),
    ),
    "pp": StrategyRow(
        "rankup.strategies.experimental.pp:PP",
        options=("microbatches",),
        members={"stages": "pipeline_stages", "loss": "loss"},
        refuses=("sync_batchnorm",),
    ),
    "deepspeed": StrategyRow(
        "rankup.strategies.experimental.deepspeed:DeepSpeed",
        # It steps on copies in fp32.
        refuses=("accumulate", "channels_last", "sync_batchnorm", "precision=fp16", "precision=fp64"),
    ),
}
#: What ``auto`` is on several processes; on one it is ``none``.
AUTO = "ddp"
#: Degrees of exactness, and the strategy that each requires; "" for any.
EXACT = {"same-world": "", "any-world": "rankup.strategies.any_world:AnyWorld"}


def names_for_scripts() -> tuple[str, ...]:
    return tuple(name for name, row in STRATEGIES.items() if row.for_scripts)


def make_strategy(name: str, **options: Any) -> Strategy:
    """A fresh strategy; ``name`` as in ``--strategy``, ``options`` as its class takes them."""
    targets = {each: row.target for each, row in STRATEGIES.items()}
    return _made(target_of("strategy", name, targets), options)


def make_exact_strategy(exact: str, **options: Any) -> Strategy:
    """The strategy that ``exact`` requires."""
    return _made(EXACT[exact], options)


def _made(target: str, options: dict[str, Any]) -> Strategy:
    strategy: Strategy = load(target)(**options)  # type: ignore[operator]
    return strategy


def __getattr__(name: str) -> Any:
    if name == "Strategy":
        from rankup.strategies.base import Strategy

        return Strategy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AUTO",
    "EXACT",
    "STRATEGIES",
    "Strategy",
    "make_exact_strategy",
    "make_strategy",
    "names_for_scripts",
]
