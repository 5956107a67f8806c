"""The options that say what is trained and how, declared once for ``rankup train`` and ``rankup scale``.

A command takes them by the decorator ``training_options``; ``training_from(context)`` is what was asked for, by the
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


def _declared(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help=f"{', '.join(WORKLOADS)}, or module:Class of your own")],
    data: Annotated[
        str, typer.Option(help="digits, fashion-mnist, mnist, cifar100, synthetic, or a directory")
    ] = "digits",
    epochs: Annotated[int, typer.Option()] = 5,
    global_batch: Annotated[int, typer.Option(help="samples per step over all processes")] = 64,
    test_batch: Annotated[int, typer.Option(help="the same, in evaluations")] = 1000,
    lr: Annotated[float, typer.Option()] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="adam, adadelta or sgd")] = "adam",
    momentum: Annotated[float, typer.Option(help="of sgd")] = 0.9,
    weight_decay: Annotated[float, typer.Option()] = 0.0,
    nesterov: Annotated[bool, typer.Option("--nesterov", help="for sgd")] = False,
    gamma: Annotated[float, typer.Option(help="factor on the learning rate after each epoch")] = 0.7,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16 or fp64")] = "fp32",
    strategy: Annotated[str, typer.Option(help=", ".join(("auto", *STRATEGIES)))] = "auto",
    accumulate: Annotated[int, typer.Option(metavar="N", help="micro-batches per step")] = 1,
    clip: Annotated[float | None, typer.Option(metavar="NORM", help="largest norm of the gradient")] = None,
    lr_rule: Annotated[
        str, typer.Option(help="none, linear or sqrt: scale --lr with the global batch")
    ] = "none",
    base_batch: Annotated[
        int | None, typer.Option(metavar="N", help="global batch that --lr was chosen for; with --lr-rule")
    ] = None,
    warmup: Annotated[int, typer.Option(metavar="STEPS", help="the learning rate rises over so many")] = 0,
    fused: Annotated[
        bool, typer.Option("--fused/--no-fused", help="optimizer kernels over all parameters")
    ] = True,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="kernels that give the same bits in every run")
    ] = False,
    compile: Annotated[bool, typer.Option("--compile", help="torch.compile")] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="memory format of convolutions")
    ] = False,
    sync_batchnorm: Annotated[
        bool, typer.Option("--sync-batchnorm", help="over all processes; GPUs only")
    ] = False,
    static_graph: Annotated[
        bool, typer.Option("--static-graph", help="ddp: every step uses the same parameters")
    ] = False,
    exact: Annotated[
        str, typer.Option(help="same-world, or any-world: the same bits on any number of processes")
    ] = "same-world",
    virtual_shards: Annotated[
        int, typer.Option(metavar="N", help="any-world: parts of a global batch; as many processes at most")
    ] = 4,
    shard_size: Annotated[
        int, typer.Option(metavar="N", help="fsdp: processes that share one copy; 0: all of them")
    ] = 0,
    microbatches: Annotated[
        int, typer.Option(metavar="N", help="pp: per batch, at most; 0: two per stage")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="for the workload; may be repeated"),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="per process; default: cores / processes")] = None,
    name: Annotated[str, typer.Option(help="of the run; default: the workload's")] = "",
    runs_root: Annotated[Path, typer.Option(help="where run directories are made")] = Path("runs"),
) -> None:
    """Its signature is all that matters: fields of ``TrainOptions``, and how and where a run of it starts."""


training_options = taking(_declared)

# The name of a run is not that of a workload, which ``TrainOptions`` has.
_FIELDS = {field.name for field in fields(TrainOptions)} - {"workload", "name"}


def training_from(context: typer.Context) -> dict[str, Any]:
    """The fields of ``TrainOptions`` that a flag was given for: a workload may have defaults for the others."""
    asked = {
        name: value for name, value in context.params.items() if name in _FIELDS and given(context, name)
    }
    if "settings" in asked:
        asked["settings"] = _settings(asked["settings"])
    if "save_model" in asked:
        asked["save_model"] = str(asked["save_model"].absolute())
    return asked


def given(context: typer.Context, name: str) -> bool:
    """Whether the parameter stands on the command line, or in a variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """``["dropout=off"]`` → ``{"dropout": "off"}``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise RankupError("bad-setting", f"--set {pair} cannot be", hint="--set KEY=VALUE")
        settings[key] = value
    return settings
