"""The options of ``rankup train``, as one plain object that the command line passes to every rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rankup.errors import RankupError
from rankup.strategies import AUTO, EXACT, STRATEGIES, StrategyRow
from rankup.world import BACKENDS


@dataclass(frozen=True)
class TrainOptions:
    """``workload``: an import target ``module:Class``. ``name``: its name in messages. Batches are in samples.

    ``given``: the fields that the user has set. ``from_workload``: the fields that the workload's defaults have set.
    """

    workload: str
    name: str
    data: str = "digits"
    epochs: int = 5
    global_batch: int = 64
    test_batch: int = 1000
    lr: float = 1e-3
    optimizer: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False
    gamma: float = 0.7
    target_accuracy: float | None = None
    patience: int = 1
    seed: int = 0
    device: str = "auto"
    precision: str = "fp32"
    strategy: str = "auto"
    shard_size: int = 0  # fsdp: processes that share one copy of the model; 0: all
    microbatches: int = 0  # pp: per batch, at most; 0: two per stage
    static_graph: bool = False  # ddp
    exact: str = "same-world"
    virtual_shards: int = 4  # of any-world
    accumulate: int = 1
    clip: float | None = None
    lr_rule: str = "none"
    base_batch: int | None = None  # the global batch that lr was chosen for
    warmup: int = 0  # steps
    fused: bool = True
    deterministic: bool = False  # kernels whose bits are the same in every run
    compile: bool = False
    channels_last: bool = False
    sync_batchnorm: bool = False
    snapshot_every: str = "10m"
    log_interval: int = 0
    dry_run: bool = False
    breakdown: bool = False  # time the parts of a step instead of training
    save_model: str | None = None
    log: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    from_workload: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _require(self.epochs >= 1, "--epochs", self.epochs, "1 or more")
        _require(self.global_batch >= 1, "--global-batch", self.global_batch, "1 or more")
        _require(self.test_batch >= 1, "--test-batch", self.test_batch, "1 or more")
        _require(self.lr > 0, "--lr", self.lr, "greater than 0")
        _require(0 < self.gamma <= 1, "--gamma", self.gamma, "in (0, 1]")
        _require(0 <= self.momentum < 1, "--momentum", self.momentum, "in [0, 1)")
        _require(self.weight_decay >= 0, "--weight-decay", self.weight_decay, "0 or more")
        target = self.target_accuracy
        _require(target is None or 0 < target <= 1, "--target-accuracy", target, "a share in (0, 1]")
        _require(self.patience >= 1, "--patience", self.patience, "1 or more epochs")
        _require(self.log_interval >= 0, "--log-interval", self.log_interval, "0 (by time) or more steps")
        _require(self.optimizer in OPTIMIZERS, "--optimizer", self.optimizer, " or ".join(OPTIMIZERS))
        _require(self.precision in PRECISIONS, "--precision", self.precision, " or ".join(PRECISIONS))
        _require(self.accumulate >= 1, "--accumulate", self.accumulate, "1 or more micro-batches")
        _require(self.clip is None or self.clip > 0, "--clip", self.clip, "greater than 0")
        _require(self.warmup >= 0, "--warmup", self.warmup, "0 or more steps")
        _require(self.shard_size >= 0, "--shard-size", self.shard_size, "0 (all) or more processes")
        _require(self.microbatches >= 0, "--microbatches", self.microbatches, "0 (two per stage) or more")
        _require(self.lr_rule in LR_RULES, "--lr-rule", self.lr_rule, " or ".join(LR_RULES))
        _require(
            self.lr_rule == "none" or (self.base_batch or 0) >= 1,
            "--base-batch",
            self.base_batch,
            f"the global batch for which --lr was chosen; --lr-rule {self.lr_rule} needs it",
        )
        self._check_strategy()
        _require(self.exact in EXACT, "--exact", self.exact, " or ".join(EXACT))
        _require(self.virtual_shards >= 1, "--virtual-shards", self.virtual_shards, "1 or more")
        _require(
            "virtual_shards" not in self.given or self.exact == "any-world",
            "--virtual-shards",
            f"with --exact {self.exact}",
            "for any-world",
        )
        _require(self.device in DEVICES, "--device", self.device, " or ".join(DEVICES))
        if self.save_model is not None:
            _check_writable(Path(self.save_model))

    @classmethod
    def asked(cls, workload: str, name: str, options: Mapping[str, Any]) -> TrainOptions:
        """Options that the user has set: no workload's default replaces them."""
        return cls(workload, name, given=sorted(options), **options)

    def with_defaults(self, defaults: Mapping[str, Any]) -> TrainOptions:
        """These options, with the workload's ``defaults`` for fields that the user has not set.

        If the user chooses another optimizer, the defaults for the workload's optimizer are left out.
        """
        if unknown := sorted(set(defaults) - set(DEFAULTS)):
            raise RankupError(
                "bad-workload-defaults",
                f"defaults() of {self.workload} names {', '.join(unknown)}",
                hint=f"allowed are {', '.join(DEFAULTS)}",
            )
        theirs = {name: value for name, value in defaults.items() if name not in self.given}
        if "optimizer" in self.given and self.optimizer != defaults.get("optimizer", self.optimizer):
            theirs = {name: value for name, value in theirs.items() if name not in OF_THE_OPTIMIZER}
        made = replace(self, **theirs, from_workload=sorted(theirs))
        for name in ("momentum", "nesterov"):
            _require(
                made.optimizer == "sgd" or name not in self.given,
                f"--{name}",
                f"with {made.optimizer}",
                "for --optimizer sgd",
            )
        _require(
            not made.nesterov or made.momentum > 0, "--nesterov", "without momentum", "used with --momentum"
        )
        return made

    def _check_strategy(self) -> None:
        """Check the name, and that the strategy uses all given options."""
        names = ("auto", *STRATEGIES)
        _require(self.strategy in names, "--strategy", self.strategy, " or ".join(names))
        for option in STRATEGY_OPTIONS:
            value = getattr(self, option)
            if value == self.__dataclass_fields__[option].default:
                continue
            able = [name for name, row in STRATEGIES.items() if _takes(row, option, value)]
            _require(
                (AUTO if self.strategy == "auto" else self.strategy) in able,
                f"--{option.replace('_', '-')}",
                f"{'' if value is True else f'{value} '}with --strategy {self.strategy}",
                f"for {', '.join(able)}",
            )
        _require(
            not self.static_graph or self.accumulate == 1,
            "--accumulate",
            self.accumulate,
            "1 with --static-graph",
        )

    def to_json(self) -> str:
        """One line, for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrainOptions:
        return cls(**json.loads(text))


OPTIMIZERS = ("adam", "adadelta", "sgd")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp64")
LR_RULES = ("none", "linear", "sqrt")
DEVICES = ("auto", *BACKENDS)
# Options of one strategy only, and options that some strategies do not support.
STRATEGY_OPTIONS = sorted(
    {option for row in STRATEGIES.values() for option in row.options}
    | {refused.partition("=")[0] for row in STRATEGIES.values() for refused in row.refuses}
)
# The fields for which a workload may have defaults, and those among them that depend on the optimizer.
OF_THE_OPTIMIZER = ("lr", "momentum", "weight_decay", "nesterov")
DEFAULTS = (
    *("data", "epochs", "global_batch", "test_batch", "precision", "optimizer", *OF_THE_OPTIMIZER),
    *("gamma", "target_accuracy", "patience"),
)


def _takes(row: StrategyRow, option: str, value: object) -> bool:
    """Whether the strategy supports this value, which is not the default."""
    special = any(option in other.options for other in STRATEGIES.values())
    if special and option not in row.options:
        return False
    return option not in row.refuses and f"{option}={value}" not in row.refuses


def _require(right: bool, flag: str, value: object, allowed: str) -> None:
    if not right:
        raise RankupError("bad-option", f"invalid {flag} {value}", hint=f"{flag} must be {allowed}")


def _check_writable(path: Path) -> None:
    """Find this out before hours of training."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RankupError(
            "unwritable-model",
            f"cannot write --save-model {path}",
            hint="use a file name in an existing directory",
        )
