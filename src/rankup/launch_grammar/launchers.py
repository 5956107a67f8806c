"""Commands and modules of Python that launch a program's ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankup.launch_grammar.reader import W

#: Command → the launcher whose options it takes, and the subcommand that must follow.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("torchrun",),
    "torchrun_jsc": ("torchrun",),
    "accelerate": ("accelerate", "launch"),
    "accelerate-launch": ("accelerate",),
    "deepspeed": ("deepspeed",),
    "ds": ("deepspeed",),
    "horovodrun": ("horovodrun",),
    "tune": ("torchrun", "run"),  # torchtune
}
#: The same for ``python -m MODULE``.
MODULES: Mapping[str, tuple[str, ...]] = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.elastic": ("torchrun",),
    "torch.distributed.elastic.run": ("torchrun",),
    "torch.distributed.launcher.api": ("torchrun",),
    "torch.distributed.launch": ("launch",),
    "torchrun_jsc": ("torchrun",),
    "accelerate.commands.launch": ("accelerate",),
    "accelerate.launch": ("accelerate",),
    "accelerate.commands.accelerate_cli": ("accelerate", "launch"),
    "accelerate": ("accelerate", "launch"),
    "deepspeed.launcher.runner": ("deepspeed",),
    "deepspeed": ("deepspeed",),
    "horovod.runner.launch": ("horovodrun",),
    "horovod.runner": ("horovodrun",),
}


def launch_of(
    names: Mapping[str, tuple[str, ...]], name: str, words: Sequence[W]
) -> tuple[str, Sequence[W]] | None:
    """The launcher that ``name`` of ``names`` is, and its words; None if it is none, or launches nothing."""
    if name not in names:
        return None
    launcher, *subcommand = names[name]
    if [word.known for word in words[: len(subcommand)]] != subcommand:
        return None
    return launcher, words[len(subcommand) :]
