"""``run.save_model``: the model alone, in a file that any PyTorch program reads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from rankup.core.files import replacing
from rankup.errors import RankupError
from rankup.runtime.context import RunContext
from rankup.runtime.distributed import buffers
from rankup.runtime.distributed.reduce import gather
from rankup.runtime.distributed.replicas import compare_weights
from rankup.strategies.state import whole_weights


def save_model(run: RunContext, path: Path, model: nn.Module | None) -> None:
    """See ``Run.save_model``."""
    model = _the_model(run, model)
    run.check_buffers()
    if run.control is not None:
        run.control.enter("run.save_model")
        compare_weights(run, "when run.save_model writes it")
    means = {}
    if run.buffers_differ and run.replicas > 1:  # in an epoch: what the end of it would make of them
        means = {id(one): mean for one, mean in buffers.averaged_buffers(model, run.world.world_size)}
    weights = whole_weights(run.strategy, model)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if id(buffer) in means and name in weights:
            weights[name] = means[id(buffer)].cpu()
    mine = _write(weights, path) if run.world.is_main else None
    failed = [error for error in gather(mine, run.control, "run.save_model") if error]
    if failed:
        code, message, hint = failed[0]
        raise RankupError(code, message, hint=hint, exit_code=1)


def _the_model(run: RunContext, model: nn.Module | None) -> nn.Module:
    distinct = {id(one) for one in run.models}  # one may be prepared again, for other data
    if model is None and len(distinct) == 1:
        return run.models[0]
    if model is None:
        raise RankupError(
            "which-model",
            f"run.save_model: {len(distinct)} models were prepared"
            if run.models
            else "no model was prepared",
            hint="run.save_model(path, model)" if run.models else "call run.prepare(model, …) first",
            exit_code=1,
        )
    # run.prepare([a, b], …) gives each of them back, and holds both in one container.
    containers = [one for one in run.models if type(one) in (nn.ModuleList, nn.ModuleDict)]
    parts = [part for one in containers for part in one.children()]
    if not any(model is one for one in (*run.models, *parts)):
        raise RankupError(
            "not-prepared",
            f"run.save_model got a {type(model).__name__} that run.prepare did not return",
            hint="save other models with torch.save, on one rank: "
            "if run.world.is_main: torch.save(model.state_dict(), path)",
            exit_code=1,
        )
    return model


def _write(weights: dict[str, torch.Tensor], path: Path) -> tuple[str, str, str] | None:
    """Write the whole file or nothing. If that fails: the code of the error, what happened, and what to do."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            if path.suffix == ".safetensors":
                from safetensors.torch import save

                # It takes no tied ones.
                file.write(save({name: tensor.clone() for name, tensor in weights.items()}))
            else:
                torch.save(weights, file)
    except ImportError:
        return (
            "no-safetensors",
            f"{path.name} needs the package safetensors, which is not installed",
            "pip install safetensors, or use a name that ends in .pt",
        )
    except (OSError, RuntimeError) as error:  # torch.save makes an OSError a RuntimeError
        why = getattr(error, "strerror", None) or error
        return (
            "model-not-written",
            f"{str(path)!r} cannot be written: {why}",
            "use a writable directory with enough free space",
        )
    return None
