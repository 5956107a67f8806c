"""The options of a training, declared once for ``rankup train`` and ``rankup scale``.

A command takes them by the decorator ``training_options``; ``training_from(context)`` returns the given ones, by the
fields of ``TrainOptions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.shared_options import taking
from rankup.errors import RankupError
from rankup.strategies import STRATEGIES
from rankup.train.options import TrainOptions
from rankup.workloads import WORKLOADS


def _option(group: str, help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=group)


# The headings of the options in help.
_DATA, _OPTIMIZER, _SCALING, _KERNELS = "Data", "Optimizer", "Processes and strategy", "Precision and kernels"


def _declared(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help=f"{', '.join(WORKLOADS)}, or module:Class of your own")],
    data: Annotated[
        str,
        _option(
            _DATA, "digits, fashion-mnist, mnist, cifar100, synthetic, or a directory", metavar="DATA|DIR"
        ),
    ] = "digits",
    epochs: Annotated[int, _option(_DATA, "number of epochs", metavar="N")] = 5,
    global_batch: Annotated[int, _option(_DATA, "samples per step over all processes", metavar="N")] = 64,
    test_batch: Annotated[
        int, _option(_DATA, "samples per batch of an evaluation, over all processes", metavar="N")
    ] = 1000,
    lr: Annotated[float, _option(_OPTIMIZER, "learning rate")] = 1e-3,
    optimizer: Annotated[str, _option(_OPTIMIZER, "the optimizer", metavar="adam|adadelta|sgd")] = "adam",
    momentum: Annotated[float, _option(_OPTIMIZER, "momentum of sgd", metavar="M")] = 0.9,
    weight_decay: Annotated[float, _option(_OPTIMIZER, "weight decay", metavar="W")] = 0.0,
    nesterov: Annotated[bool, _option(_OPTIMIZER, "Nesterov momentum, for sgd", "--nesterov")] = False,
    gamma: Annotated[
        float, _option(_OPTIMIZER, "multiply the learning rate by this after each epoch", metavar="G")
    ] = 0.7,
    seed: Annotated[int, _option(_DATA, "seed of weights, sample order and random numbers", metavar="S")] = 0,
    device: Annotated[str, _option(_SCALING, "where to train", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[
        str, _option(_KERNELS, "number format of the computation", metavar="fp32|tf32|bf16|fp16|fp64")
    ] = "fp32",
    strategy: Annotated[
        str,
        _option(
            _SCALING,
            "how processes share the work (dp and deepspeed: experimental)",
            metavar="|".join(("auto", *STRATEGIES)),
        ),
    ] = "auto",
    accumulate: Annotated[int, _option(_OPTIMIZER, "micro-batches per step", metavar="N")] = 1,
    clip: Annotated[
        float | None, _option(_OPTIMIZER, "clip the norm of the gradient at NORM", metavar="NORM")
    ] = None,
    lr_rule: Annotated[
        str, _option(_OPTIMIZER, "scale --lr with the global batch", metavar="none|linear|sqrt")
    ] = "none",
    base_batch: Annotated[
        int | None,
        _option(_OPTIMIZER, "with --lr-rule: the global batch that --lr was chosen for", metavar="N"),
    ] = None,
    warmup: Annotated[
        int, _option(_OPTIMIZER, "raise the learning rate over the first steps", metavar="STEPS")
    ] = 0,
    fused: Annotated[bool, _option(_KERNELS, "fused optimizer kernels", "--fused/--no-fused")] = True,
    deterministic: Annotated[
        bool, _option(_KERNELS, "only kernels that give the same bits in every run", "--deterministic")
    ] = False,
    compile: Annotated[bool, _option(_KERNELS, "use torch.compile", "--compile")] = False,
    channels_last: Annotated[
        bool, _option(_KERNELS, "channels-last memory format for convolutions", "--channels-last")
    ] = False,
    sync_batchnorm: Annotated[
        bool, _option(_SCALING, "BatchNorm over all processes; GPUs only", "--sync-batchnorm")
    ] = False,
    static_graph: Annotated[
        bool, _option(_SCALING, "ddp: every step uses the same parameters", "--static-graph")
    ] = False,
    exact: Annotated[
        str,
        _option(
            _SCALING,
            "any-world gives the same bits on any number of processes",
            metavar="same-world|any-world",
        ),
    ] = "same-world",
    virtual_shards: Annotated[
        int, _option(_SCALING, "any-world: parts of a global batch; at most N processes", metavar="N")
    ] = 4,
    shard_size: Annotated[
        int, _option(_SCALING, "fsdp: processes that share one copy; 0: all", metavar="N")
    ] = 0,
    microbatches: Annotated[
        int, _option(_SCALING, "pp: micro-batches per batch, at most; 0: two per stage", metavar="N")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        _option(_DATA, "an option of the workload; may be repeated", "--set", metavar="KEY=VALUE"),
    ] = None,
    threads: Annotated[
        int | None, _option(_SCALING, "threads per process; default: cores / processes", metavar="T")
    ] = None,
    name: Annotated[str, typer.Option(help="name of the run; default: the workload's")] = "",
    runs_root: Annotated[Path, typer.Option(metavar="DIR", help="directory of the run directories")] = Path(
        "runs"
    ),
) -> None:
    """Never called: only the signature is used. Fields of ``TrainOptions``, and how and where its run starts."""


training_options = taking(_declared)

# The name of a run is not that of a workload, which ``TrainOptions`` has.
_FIELDS = {field.name for field in fields(TrainOptions)} - {"workload", "name"}


def training_from(context: typer.Context) -> dict[str, Any]:
    """The fields of ``TrainOptions`` given as flags: a workload may have its own defaults for the others."""
    asked = {
        name: value for name, value in context.params.items() if name in _FIELDS and given(context, name)
    }
    if "settings" in asked:
        asked["settings"] = _settings(asked["settings"])
    if "save_model" in asked:
        asked["save_model"] = str(asked["save_model"].absolute())
    return asked


def given(context: typer.Context, name: str) -> bool:
    """Whether the parameter was given on the command line or by a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """``["dropout=off"]`` → ``{"dropout": "off"}``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise RankupError(
                "bad-setting", f"invalid --set {pair!r}", hint="use --set KEY=VALUE, e.g. --set dropout=off"
            )
        settings[key] = value
    return settings
