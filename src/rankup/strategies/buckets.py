"""The buckets of a DDP model: which gradients are summed over ranks together, and where each lies among them.

With more than two ranks a ring's order of summation depends on an element's position in its bucket, so the last bit
depends on the layout. DDP begins with the order of the parameters. In the first backward that is reduced it notes the
order in which gradients become ready, and rebuilds its buckets once, in rank 0's order. A process that resumes would
begin with the first layout again. So the order is also noted here and saved in the state, and a resumed process builds
DDP's reducer with that order from the beginning.

DDP also reduces only the parameters that required a gradient when it was made. The gradient of a parameter that is
unfrozen later would silently not be reduced: then the reducer is rebuilt for the parameters that are trained now.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rankup.core.whole_lines import warn
from rankup.errors import RankupError
from rankup.strategies.changes import power_of_two, requires_grad

# Private members of DDP that are needed to rebuild its reducer. torch 2.6 to 2.13 have all of them.
_OF_DDP = ("_build_params_for_reducer", "_build_debug_param_to_name_mapping", "_ddp_init_helper")
_OF_REDUCER = ("_remove_autograd_hooks", "_push_all_rebuilt_params", "_rebuild_buckets")


class Buckets:
    """Of one DDP model."""

    def __init__(self, ddp: DistributedDataParallel, renewed: Callable[[], None]) -> None:
        """``renewed`` is called when DDP has come to reduce other parameters."""
        self._renewed = renewed
        self._ddp = weakref.ref(ddp)
        self._calls = 0  # of DDP's forward with gradients on
        self._seen: dict[
            int, tuple[int, int, int]
        ] = {}  # optimizer → those at its last step, and of which gradient
        self.reduced: frozenset[int] = frozenset()  # ids of the parameters that DDP reduces
        self._trained: list[int] = []  # the same, in the model's order
        self._equal = {id(parameter) for parameter in ddp.module.parameters()}  # rank 0's, on all ranks
        self._begin(ddp)

    def before_forward(self, ddp: DistributedDataParallel, *, changed: bool) -> None:
        """Before each forward pass of DDP with gradients, in which it rebuilds its buckets. ``changed``: whether a
        parameter or a layer may have been put into the model, which is then walked; and in calls 1, 2, 4, 8, … for what
        torch does not tell of."""
        self._calls = calls = self._calls + 1
        if self._ready:
            self._end_backward(ddp)
        flags = bytes(map(requires_grad, self._all))
        if changed or power_of_two(calls) or (flags != self._flags and 1 in flags):
            self._follow(ddp)
        self._notes = ddp.require_backward_grad_sync

    def reduced_for(self, optimizer: Optimizer, gradient: torch.Tensor) -> bool:
        """Before ``optimizer`` takes ``gradient``: whether DDP's forward ran since its last step, or the gradient is
        still the one of that step."""
        now = (self._calls, gradient.data_ptr() if not gradient.is_sparse else 0, gradient._version)
        before, self._seen[id(optimizer)] = self._seen.get(id(optimizer), (0, 0, 0)), now
        return self._calls > before[0] or now == before

    def finished(self) -> bool:
        """Whether DDP has reduced all that a backward began: it waits until every parameter has its gradient."""
        reducer: Any = getattr(self._ddp(), "reducer", None)
        if not hasattr(reducer, "_check_reducer_finalized"):
            return True  # DDP's next forward finds out
        try:
            reducer._check_reducer_finalized()
        except RuntimeError:
            return False
        return True

    def name_of(self, parameter: nn.Parameter) -> str:
        return self._names[id(parameter)]

    # ------------------------------------------------------------ the state

    @property
    def layout(self) -> dict[str, Any] | None:
        """``{"order": names as their gradients became ready, "left": backward passes until DDP uses that order}``.

        None before the first backward that was reduced, and where DDP never lays its buckets out anew.
        """
        order = self._order_now() if self._ready else self._order
        return {"order": order, "left": self._left - bool(self._ready)} if order else None

    def restore(self, ddp: DistributedDataParallel, saved: dict[str, Any] | None) -> None:
        """Use the layout ``saved``, which is the same on all ranks. A collective."""
        with self._awake(ddp, saved):
            self._restore(ddp, saved)

    def _restore(self, ddp: DistributedDataParallel, saved: dict[str, Any] | None) -> None:
        self._follow(ddp)
        if saved == self.layout:
            return
        if self.layout is not None:  # a training that goes back to where it was before
            self._anew(ddp)
        if saved is None or set(saved["order"]) != {self._names[key] for key in self._trained}:
            return  # frozen or unfrozen since the last step: DDP would begin anew there, too
        if saved["left"]:
            self._early = True
        elif _can_lay_out(ddp):
            self._lay_out(ddp, saved["order"])

    # --------------------------------------------------------------- inside

    @contextmanager
    def _awake(self, ddp: DistributedDataParallel, saved: dict[str, Any] | None) -> Iterator[None]:
        """If nothing is trained, as in a discriminator while its generator learns, a reducer cannot be made. So those
        that ``saved`` names, or that DDP reduces now, require a gradient in here."""
        named = dict(ddp.module.named_parameters())
        if _trained(ddp.module):
            awake = []
        elif saved is not None:
            awake = [named[name] for name in saved["order"] if name in named]
        else:
            awake = [parameter for parameter in named.values() if id(parameter) in self.reduced]
        for parameter in awake:
            parameter.requires_grad_(True)
        try:
            yield
        finally:
            for parameter in awake:
                parameter.requires_grad_(False)

    def _begin(self, ddp: DistributedDataParallel) -> None:
        """With a new reducer: note the order of the next backward that is reduced."""
        trained = _trained(ddp.module)
        self._note_walk(ddp)
        self._trained = [id(parameter) for parameter in trained]
        self.reduced = frozenset(self._trained)
        self._names: dict[int, str] = {
            id(parameter): name for name, parameter in ddp.module.named_parameters()
        }
        self._order: list[str] = []
        self._ready: list[int] = []  # ids of parameters whose gradients came, in this backward
        self._notes = False  # whether the next backward is reduced
        self._early = False  # use the next order at once: the process before had one backward more
        self._last = bool(ddp.static_graph)
        # A static graph is learned in a first backward, and its order noted in a second one.
        self._left = 2 if ddp.static_graph else 0 if ddp.find_unused_parameters else 1
        self._hooks: list[RemovableHandle] = (
            [
                parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
                for parameter in trained
            ]
            if self._left
            else []
        )

    def _note(self, parameter: torch.Tensor) -> None:
        if self._notes:
            self._ready.append(id(parameter))

    def _order_now(self) -> list[str]:
        """In a static graph a parameter that is used repeatedly is ready the last time, and unused ones come last."""
        ready = list(dict.fromkeys(reversed(self._ready)))[::-1] if self._last else dict.fromkeys(self._ready)
        return [self._names[key] for key in dict.fromkeys([*ready, *self._trained])]

    def _end_backward(self, ddp: DistributedDataParallel) -> None:
        self._order, self._ready = self._order_now(), []
        self._left -= 1
        if self._early and _can_lay_out(ddp):
            self._lay_out(ddp, self._order)
        elif not self._left:
            self._forget()

    def _forget(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _follow(self, ddp: DistributedDataParallel) -> None:
        """If other parameters are trained now than DDP reduces, make it reduce those. A collective."""
        trained = _trained(ddp.module)
        if not all(parameter.is_leaf for parameter in trained):
            raise RankupError(
                "gradients-not-reduced",
                "the model was called with other tensors in the place of its parameters, as torch.func.functional_call "
                "does: ddp would not reduce their gradients",
                hint="do that in the model's forward, in a module that holds it",
                exit_code=1,
            )
        # None: frozen for a while, as a discriminator is while its generator learns.
        if not trained:
            return
        if [id(parameter) for parameter in trained] == self._trained:
            self._note_walk(ddp)
            return
        if not _has_all(ddp):
            raise RankupError(
                "other-trained-parameters",
                "parameters were frozen or unfrozen after prepare, which ddp cannot follow with torch "
                + torch.__version__,
                hint="freeze and unfreeze before prepare, or use another version of torch",
                exit_code=1,
            )
        for parameter in trained:
            if id(parameter) not in self._equal:  # put into the model after prepare
                self._equal.add(id(parameter))
                with torch.no_grad():
                    sent = parameter.detach().contiguous()
                    dist.broadcast(sent, src=0)
                    parameter.copy_(sent)
        self._anew(ddp)

    def _note_walk(self, ddp: DistributedDataParallel) -> None:
        self._all = tuple(ddp.module.parameters())
        self._flags = bytes(map(requires_grad, self._all))

    def _anew(self, ddp: DistributedDataParallel) -> None:
        self._forget()
        _make_reducer(ddp, None)
        self._begin(ddp)
        self._renewed()

    def _lay_out(self, ddp: DistributedDataParallel, order: Sequence[str]) -> None:
        parameters = dict(ddp.module.named_parameters())
        self._forget()
        _make_reducer(ddp, [parameters[name] for name in order])
        self._order, self._left, self._early = list(order), 0, False


def _trained(module: nn.Module) -> list[nn.Parameter]:
    """Each parameter once that requires a gradient."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _make_reducer(ddp: DistributedDataParallel, order: Sequence[nn.Parameter] | None) -> None:
    """A fresh reducer; with ``order``, which names each trained parameter, laid out by it for good. A collective."""
    inside: Any = ddp
    inside.reducer._remove_autograd_hooks()
    parameters, sparse = inside._build_params_for_reducer()
    if order is not None:
        is_sparse = {id(parameter): flag for parameter, flag in zip(parameters, sparse, strict=True)}
        parameters, sparse = list(order), [is_sparse[id(parameter)] for parameter in order]
    names = inside._build_debug_param_to_name_mapping(parameters)
    inside._ddp_init_helper(parameters, sparse, names, inside.static_graph)
    if inside.static_graph:  # which it learns in the next backward
        inside._static_graph_delay_allreduce_enqueued = False
        inside.reducer._set_static_graph()
        inside.logger._set_static_graph()
    hooks = getattr(inside, "_comm_hooks", ())
    for hook, state in hooks:
        dist._register_comm_hook(inside.reducer, state, hook)  # type: ignore[attr-defined]
    if not hooks:
        divide_alike(ddp)
    if order is not None:
        inside.reducer._push_all_rebuilt_params()
        inside.reducer._rebuild_buckets()


def divide_alike(ddp: DistributedDataParallel) -> None:
    """Make a fresh reducer divide all gradients by the number of ranks in the same way.

    On its own DDP multiplies a gradient that is new by 1 / ranks, and divides one that lies in its bucket already, as
    after ``zero_grad(set_to_none=False)`` or between the batches of a window that is accumulated by hand. With three
    ranks the two differ in the last bit. In a resumed process every gradient is new, so its first step would differ
    from that of the process before. torch's built-in all-reduce hook always divides the whole bucket, in a pass of its
    own; with 2, 4, 8, … ranks both ways are exact, and the pass is saved."""
    inside: Any = ddp
    ranks = inside.process_group.size()
    if ranks & (ranks - 1) == 0:
        return
    kind = dist.BuiltinCommHookType.ALLREDUCE  # type: ignore[attr-defined]
    inside._register_builtin_comm_hook(kind)


def _has_all(ddp: Any) -> bool:
    return all(hasattr(ddp, name) for name in _OF_DDP) and all(
        hasattr(ddp.reducer, name) for name in _OF_REDUCER
    )


def _can_lay_out(ddp: Any) -> bool:
    if _has_all(ddp):
        return True
    warn(
        f"torch {torch.__version__} does not let DDP's buckets be laid out as they were: on three or more ranks the "
        "first step after this resume may differ in the last bit"
    )
    return False
