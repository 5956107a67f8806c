"""BatchNorm needs two values per channel: an early error for a share of one sample, as in a short last batch."""

from __future__ import annotations

from torch import nn

from rankup.errors import RankupError
from rankup.runtime.data.sharding import Sharding, smallest_share

_FLAT = (nn.BatchNorm1d, nn.LazyBatchNorm1d)
_ALONG_A_LINE = (nn.Conv1d, nn.ConvTranspose1d, nn.LazyConv1d, nn.LazyConvTranspose1d)


def sees_one_value(model: nn.Module) -> str | None:
    """The name of a BatchNorm layer that gets one value per channel from one sample; None without one.

    BatchNorm2d and BatchNorm3d get many values per sample. BatchNorm1d does after a Conv1d, but not after a Linear.
    """
    along_a_line = False
    for name, module in model.named_modules():
        if isinstance(module, _ALONG_A_LINE):
            along_a_line = True
        elif isinstance(module, (nn.Linear, nn.LazyLinear)):
            along_a_line = False
        elif isinstance(module, _FLAT) and module.training and not along_a_line:
            return name or type(module).__name__
    return None


def check_shares(model: nn.Module, sharding: Sharding, micro_batches: int, drop_last: bool | None) -> None:
    """An error before the first step if a rank would compute on a single sample. ``drop_last=False`` allows it."""
    if drop_last is False or (layer := sees_one_value(model)) is None:
        return
    plan = sharding.plan(0)
    smallest, in_the_last_step = smallest_share(
        plan, sharding.world_size, micro_batches, sharding.fixed_parts
    )
    if smallest > 1:
        return
    share = f"one of {sharding.world_size} processes" if sharding.world_size > 1 else "the process"
    if sharding.sampled is not None and sharding.global_batch == 0:
        hint = "let the batch_sampler leave out such batches; drop_last=False allows them"
    elif in_the_last_step:
        hint = "drop_last=True leaves out that step; or use another global_batch; drop_last=False allows it"
    else:
        hint = "use a larger global_batch or a smaller accumulate; drop_last=False allows it"
    raise RankupError(
        "batchnorm-one-sample",
        f"{layer} is a BatchNorm, and {share} would compute on one sample alone in "
        + (
            f"the last step of each epoch ({plan.total(plan.steps - 1)} samples)"
            if in_the_last_step
            else "some steps"
        )
        + ": torch cannot train it on one value per channel",
        hint=hint,
    )
