"""The options of a training, made from the fields of ``TrainOptions``, for ``rankup train`` and ``rankup scale``.

A command takes them by the decorator ``training_options``; ``training_from(context)`` returns the given ones, by the
fields of ``TrainOptions``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import typer

from rankup.cli.job_options import some_job_options
from rankup.cli.options import given, parameter, taking
from rankup.core.nearest import did_you_mean
from rankup.errors import RankupError
from rankup.strategies import STRATEGIES
from rankup.train.options import TrainOptions
from rankup.workloads import WORKLOADS

_DATA, _OPTIMIZER, _SCALING, _KERNELS = "Data", "Optimizer", "Processes and strategy", "Precision and kernels"
# Field of ``TrainOptions`` → (group, help, metavar).
_OPTIONS: dict[str, tuple[str, str, str]] = {
    "data": (_DATA, "digits, fashion-mnist, mnist, cifar100, synthetic, or a directory", "DATA|DIR"),
    "epochs": (_DATA, "number of epochs", "N"),
    "global_batch": (_DATA, "samples per step over all processes", "N"),
    "test_batch": (_DATA, "samples per batch of an evaluation, over all processes", "N"),
    "lr": (_OPTIMIZER, "learning rate", ""),
    "optimizer": (_OPTIMIZER, "the optimizer", "adam|adadelta|sgd"),
    "momentum": (_OPTIMIZER, "momentum of sgd", "M"),
    "weight_decay": (_OPTIMIZER, "weight decay", "W"),
    "nesterov": (_OPTIMIZER, "Nesterov momentum, for sgd", ""),
    "gamma": (_OPTIMIZER, "multiply the learning rate by this after each epoch", "G"),
    "seed": (_DATA, "seed of weights, sample order and random numbers", "S"),
    "device": (_SCALING, "where to train", "auto|cpu|cuda|xpu"),
    "precision": (_KERNELS, "number format of the computation", "fp32|tf32|bf16|fp16|fp64"),
    "strategy": (
        _SCALING,
        "how processes share the work (dp and deepspeed: experimental)",
        "|".join(("auto", *STRATEGIES)),
    ),
    "accumulate": (_OPTIMIZER, "micro-batches per step", "N"),
    "clip": (_OPTIMIZER, "clip the norm of the gradient at NORM", "NORM"),
    "lr_rule": (_OPTIMIZER, "scale --lr with the global batch", "none|linear|sqrt"),
    "base_batch": (_OPTIMIZER, "with --lr-rule: the global batch that --lr was chosen for", "N"),
    "warmup": (_OPTIMIZER, "raise the learning rate over the first steps", "STEPS"),
    "fused": (_KERNELS, "fused optimizer kernels", ""),
    "deterministic": (_KERNELS, "only kernels that give the same bits in every run", ""),
    "compile": (_KERNELS, "use torch.compile", ""),
    "channels_last": (_KERNELS, "channels-last memory format for convolutions", ""),
    "sync_batchnorm": (_SCALING, "BatchNorm over all processes; GPUs only", ""),
    "static_graph": (_SCALING, "ddp: every step uses the same parameters", ""),
    "exact": (_SCALING, "any-world gives the same bits on any number of processes", "same-world|any-world"),
    "virtual_shards": (_SCALING, "any-world: parts of a global batch; at most N processes", "N"),
    "shard_size": (_SCALING, "fsdp: processes that share one copy; 0: all", "N"),
    "microbatches": (_SCALING, "pp: micro-batches per batch, at most; 0: two per stage", "N"),
    "settings": (_DATA, "an option of the workload; may be repeated", "KEY=VALUE"),
}
_NAMES = {"settings": ("--set",), "fused": ("--fused/--no-fused",)}


def training_fields() -> Iterator[inspect.Parameter]:
    """The options alone, without the workload."""
    kinds = get_type_hints(TrainOptions)
    defaults = {field.name: field.default for field in fields(TrainOptions)}
    for key, (group, help_text, metavar) in _OPTIONS.items():
        several = key == "settings"
        kind = list[str] | None if several else kinds[key]
        names = _NAMES.get(key, (f"--{key.replace('_', '-')}",))
        option = typer.Option(*names, help=help_text, metavar=metavar or None, rich_help_panel=group)
        yield parameter(key, kind, option, None if several else defaults[key])
    yield from some_job_options("run", "threads", "name", "runs_root")


def _declared() -> Iterator[inspect.Parameter]:
    what = f"{', '.join(WORKLOADS)}, module:Class of your own, or the job.toml of such a training"
    # Without a default: it has to be given.
    yield parameter("workload", str, typer.Argument(help=what), inspect.Parameter.empty)
    yield from training_fields()


training_options = taking(_declared())

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


def training_from_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same from a table of a TOML file, whose keys are the options. Raises ValueError for what no option takes."""
    kinds = get_type_hints(TrainOptions)
    asked = {}
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in _OPTIONS and key != "target_accuracy":
            raise ValueError(f"unknown option {written!r}{did_you_mean(key, _OPTIONS)}")
        if key == "settings":
            good = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        else:
            good = type(value) in (takes := get_args(kinds[key]) or (kinds[key],)) or (
                type(value) is int and float in takes
            )
        if not good:
            raise ValueError(f"{written} is {value!r}, which is of the wrong type")
        asked[key] = value
    return asked


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """``["dropout=off"]`` → ``{"dropout": "off"}``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise RankupError("bad-setting", f"invalid --set {pair}", hint="use --set KEY=VALUE")
        settings[key] = value
    return settings
