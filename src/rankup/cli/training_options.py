"""The options that say what is trained and how, made from the fields of ``TrainOptions``, for ``rankup train`` and
``rankup scale``.

A command takes them by the decorator ``training_options``; ``training_from(context)`` is what was asked for, by the
fields of ``TrainOptions``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

import typer

from rankup.cli.job_options import some_job_options
from rankup.cli.shared_options import given, parameter, taking
from rankup.errors import RankupError
from rankup.train.options import TrainOptions
from rankup.workloads import WORKLOADS

_MODEL, _DATA, _OPTIMIZER, _SPEED, _PROCESSES = (
    "What is trained",
    "Data",
    "Optimizer",
    "Precision and speed",
    "Strategy",
)
# Field of ``TrainOptions`` → (group, help, metavar).
_OPTIONS: dict[str, tuple[str, str, str]] = {
    "data": (_DATA, "digits, fashion-mnist, mnist, cifar100, synthetic, or a directory", ""),
    "epochs": (_DATA, "passes over the training data", ""),
    "global_batch": (_DATA, "samples per step over all processes", ""),
    "test_batch": (_DATA, "the same, in evaluations", ""),
    "lr": (_OPTIMIZER, "learning rate", ""),
    "optimizer": (_OPTIMIZER, "adam, adadelta or sgd", ""),
    "momentum": (_OPTIMIZER, "of sgd", ""),
    "weight_decay": (_OPTIMIZER, "as in the optimizer of torch", ""),
    "nesterov": (_OPTIMIZER, "for sgd", ""),
    "gamma": (_OPTIMIZER, "factor on the learning rate after each epoch", ""),
    "seed": (_DATA, "of the weights, the order of the samples and augmentation", ""),
    "device": (_SPEED, "auto, cpu or cuda", ""),
    "precision": (_SPEED, "fp32, tf32, bf16, fp16 or fp64", ""),
    "strategy": (_PROCESSES, "auto, none, ddp, fsdp, tp, pp; experimental: dp, deepspeed", ""),
    "accumulate": (_OPTIMIZER, "micro-batches per step", "N"),
    "clip": (_OPTIMIZER, "largest norm of the gradient", "NORM"),
    "lr_rule": (_OPTIMIZER, "none, linear or sqrt: scale --lr with the global batch", ""),
    "base_batch": (_OPTIMIZER, "global batch that --lr was chosen for; with --lr-rule", "N"),
    "warmup": (_OPTIMIZER, "the learning rate rises over so many", "STEPS"),
    "fused": (_SPEED, "optimizer kernels over all parameters", ""),
    "deterministic": (_SPEED, "kernels that give the same bits in every run", ""),
    "compile": (_SPEED, "torch.compile", ""),
    "channels_last": (_SPEED, "memory format of convolutions", ""),
    "sync_batchnorm": (_PROCESSES, "over all processes; GPUs only", ""),
    "static_graph": (_PROCESSES, "ddp: every step uses the same parameters", ""),
    "exact": (_PROCESSES, "same-world, or any-world: the same bits on any number of processes", ""),
    "virtual_shards": (_PROCESSES, "any-world: parts of a global batch; as many processes at most", "N"),
    "shard_size": (_PROCESSES, "fsdp: processes that share one copy; 0: all of them", "N"),
    "microbatches": (_PROCESSES, "pp: per batch, at most; 0: two per stage", "N"),
    "settings": (_MODEL, "for the workload; may be repeated", "KEY=VALUE"),
}
_NAMES = {"settings": ("--set",), "fused": ("--fused/--no-fused",)}


def _declared() -> Iterator[inspect.Parameter]:
    what = f"{', '.join(WORKLOADS)}, module:Class of your own, or the job.toml of such a training"
    # Without a default: it has to be given.
    yield parameter("workload", str, typer.Argument(help=what), inspect.Parameter.empty)
    kinds = get_type_hints(TrainOptions)
    defaults = {field.name: field.default for field in fields(TrainOptions)}
    for key, (group, help_text, metavar) in _OPTIONS.items():
        several = key == "settings"
        kind = list[str] | None if several else kinds[key]
        names = _NAMES.get(key, (f"--{key.replace('_', '-')}",))
        option = typer.Option(*names, help=help_text, metavar=metavar or None, rich_help_panel=group)
        yield parameter(key, kind, option, None if several else defaults[key])
    yield from some_job_options("run", "threads", "name", "runs_root")


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


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    """``["dropout=off"]`` → ``{"dropout": "off"}``."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise RankupError("bad-setting", f"--set {pair} cannot be", hint="--set KEY=VALUE")
        settings[key] = value
    return settings
