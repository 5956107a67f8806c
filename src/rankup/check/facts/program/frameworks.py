"""Frameworks, a row each: what they do for a program, so that its own code need not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from rankup.check.facts.program.module import Module
from rankup.check.facts.program.names import words


class Does(Enum):
    """What a framework can do in place of the program. A rule asks for what it depends on, and for nothing else."""

    GROUP = auto()  # forms the process group, and ends it
    DEVICE = auto()  # chooses the GPU of each rank
    WRAP = auto()  # averages gradients, or shards the model
    SPLIT = auto()  # splits the model, so that ranks have more than one meaning
    SAMPLER = auto()  # divides the data of the loaders that it gets
    EPOCH = auto()  # tells samplers the epoch
    LOOP = auto()  # runs the training loop
    GRADIENTS = auto()  # accumulates, clips and clears gradients
    SCALER = auto()  # scales the loss, and unscales the gradients
    SCHEDULE = auto()  # steps schedules once for each rank
    SAVE = auto()  # writes and reads snapshots of its own
    METRICS = auto()  # adds metrics up over ranks


ALL = frozenset(Does)


@dataclass(frozen=True)
class Framework:
    name: str
    packages: tuple[str, ...]
    does: frozenset[Does]
    forms: tuple[str, ...]  # calls that form the process group
    collectives: tuple[tuple[str, tuple[str, ...]], ...]  # what makes an object, and its collectives
    only: tuple[str, ...]  # ends of the imported names that make the package this framework; none: any
    trainers: tuple[str, ...]  # what gets the number of devices


def _row(
    name: str,
    packages: str = "",
    does: Iterable[Does] = ALL,
    forms: str = "",
    collectives: tuple[tuple[str, tuple[str, ...]], ...] = (),
    only: str = "",
    trainers: tuple[str, ...] = (),
) -> Framework:
    named = words(packages or name)
    return Framework(name, named, frozenset(does), words(forms), collectives, words(only), trainers)


_LIGHTNING = words("lightning.Trainer lightning.pytorch.Trainer pytorch_lightning.Trainer")
_FABRIC = words("lightning.Fabric lightning.fabric.Fabric lightning_fabric.Fabric")
_LOADERS = (Does.SAMPLER, Does.EPOCH)

FRAMEWORKS = (
    _row(
        "lightning",
        "pytorch_lightning lightning flash",
        ALL - {Does.SPLIT, Does.SCHEDULE},
        collectives=tuple((one, words("fit validate test predict save_checkpoint")) for one in _LIGHTNING),
        trainers=_LIGHTNING,
    ),
    _row(
        "fabric",
        "lightning_fabric lightning",
        (Does.GROUP, Does.DEVICE, Does.WRAP, *_LOADERS, Does.GRADIENTS, Does.SCALER, Does.SAVE),
        only="fabric Fabric",
        trainers=_FABRIC,
    ),
    _row(
        "accelerate",
        "accelerate",
        ALL - {Does.SPLIT, Does.LOOP, Does.METRICS},
        forms="accelerate.Accelerator",
        collectives=(
            (
                "accelerate.Accelerator",
                # save_state only with FSDP or DeepSpeed, which the launcher's configuration decides
                words("wait_for_everyone gather gather_for_metrics reduce pad_across_processes"),
            ),
        ),
    ),
    _row(
        "deepspeed",
        "deepspeed",
        (Does.GROUP, Does.DEVICE, Does.WRAP, Does.GRADIENTS, Does.SCALER, Does.SAVE),
        forms="deepspeed.init_distributed deepspeed.initialize",
        collectives=(("deepspeed.initialize", words("save_checkpoint load_checkpoint")),),
    ),
    _row("hf-trainer", "trl unsloth setfit sentence_transformers", ALL - {Does.SPLIT}),
    _row("hf-trainer", "transformers", ALL - {Does.SPLIT}, only="Trainer TrainingArguments"),
    _row("horovod", "horovod", (Does.GROUP, Does.WRAP), forms="horovod.torch.init"),
    _row("fairscale", "fairscale", (Does.WRAP, Does.SPLIT)),
    _row("webdataset", "webdataset", _LOADERS),
    _row("ffcv", "ffcv", _LOADERS),
    _row("streaming", "streaming", _LOADERS),
    _row("dali", "nvidia.dali", _LOADERS),
    _row("xpu", "intel_extension_for_pytorch oneccl_bindings_for_pytorch", (Does.DEVICE,)),
    _row("npu", "torch_npu", (Does.DEVICE,)),
    _row("hpu", "habana_frameworks", (Does.DEVICE,)),
    _row("ezpz", "ezpz", (Does.GROUP, Does.DEVICE)),
    _row("xla", "torch_xla"),
    _row("composer", "composer mosaicml"),
    _row("mmcv", "mmcv mmengine mmdet"),
    _row("detectron2", "detectron2 fvcore"),
    _row("modulus", "modulus physicsnemo"),
    _row("tensorrt", "tensorrt_llm"),
    _row("nvrx", "nvidia_resiliency_ext"),
    _row("sky", "skypilot"),
    *(
        _row(name)
        for name in words(
            """
            ray colossalai ignite fastai torchtitan megatron catalyst rankup torchtnt nemo axolotl oneflow paddle mxnet
            bagua hivemind torchft smdistributed sagemaker vissl classy_vision torchrec dgl
            """
        )
    ),
)
_BY_PACKAGE: dict[str, list[Framework]] = {}
for _each in FRAMEWORKS:
    for _package in _each.packages:
        _BY_PACKAGE.setdefault(_package.partition(".")[0], []).append(_each)
PACKAGES = frozenset(_BY_PACKAGE)


def frameworks_of(modules: list[Module]) -> list[Framework]:
    """The frameworks that a program imports."""
    found: dict[Framework, None] = {}
    for module in modules:
        for name, level, names in module.imported:
            for row in _BY_PACKAGE.get(name.partition(".")[0], ()) if not level else ():
                if _is_of(row, name, names):
                    found[row] = None
    return list(found)


def _is_of(row: Framework, name: str, names: tuple[str, ...]) -> bool:
    if not any(name == package or name.startswith(f"{package}.") for package in row.packages):
        return False
    return not row.only or any(part.endswith(row.only) for part in (*name.split("."), *names))
