"""The state of a run in numbers that a trace can hold: digests by name."""

from __future__ import annotations

from rankup.runtime.context import RunContext
from rankup.runtime.digest import digest
from rankup.strategies import state as by_name
from rankup.strategies.clipping import local


def gradients_pending(run: RunContext) -> bool:
    """Whether gradients remain after the step: of a window that is accumulated by hand, or not cleared yet."""
    gradients = (p.grad for model, _ in run.prepared for p in model.parameters() if p.grad is not None)
    return any(bool(local(gradient.detach()).any()) for gradient in gradients)


def state_digests(run: RunContext) -> dict[str, str]:
    """Name → SHA-256: ``model/NAME``, ``buffers/NAME`` (those that are not persistent), ``optimizer/NAME/FIELD``,
    ``optimizer/NAME/options``, ``registered/NAME``, ``metrics/NAME``; a second model's names begin with ``1/``."""
    found: dict[str, str] = {}
    for index, (model, optimizer) in enumerate(run.prepared):
        prefix = f"{index}/" if index else ""
        saved = by_name.state(run.strategy, model, optimizer)
        found |= {f"{prefix}model/{name}": digest(tensor) for name, tensor in saved["model"].items()}
        found |= {
            f"{prefix}buffers/{name}": digest(buffer)
            for name, buffer in model.named_buffers(remove_duplicate=False)
            if name not in saved["model"]
        }
        trained = saved.get("optimizer", {"state": {}, "groups": {}})
        for name, fields in trained["state"].items():
            found |= {
                f"{prefix}optimizer/{name}/{field}": digest(value) for field, value in sorted(fields.items())
            }
        for name, options in trained["groups"].items():
            found[f"{prefix}optimizer/{name}/options"] = digest(dict(sorted(options.items())))
    found |= {
        f"registered/{name}": digest(thing.state_dict())
        for name, thing in sorted(run.registered.items())
        if not getattr(thing, "timed", False)
    }
    if run.world.is_main:  # logged numbers are rank 0's, and so are those that a resume restores
        found |= {f"metrics/{name}": digest(float(value)) for name, value in sorted(run.metrics.items())}
    return found
