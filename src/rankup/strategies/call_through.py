"""A model whose calls go through a wrapper (DDP), while it stays the user's own object otherwise.

``DistributedDataParallel(model)`` is another object: its parameters have other names, ``model.temperature`` is missing,
``model.temperature = 2`` is set where no forward pass sees it, and a call of the original trains without the others.
So the wrapper stays inside, and the class of the model becomes a subclass of its own whose ``__call__`` enters the
wrapper first, as ``fully_shard`` does it, too.

Copies (``copy.deepcopy``, ``AveragedModel``, ``torch.save`` of a whole model) are of the user's class, and have no
wrapper.
"""

from __future__ import annotations

import copyreg
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankup.errors import RankupError
from rankup.strategies.changes import count_registered, registered

Module = TypeVar("Module", bound=nn.Module)

_WRAPPER = "_rankup_wrapper"
_inside: list[nn.Module] = []  # modules whose wrapped forward runs now; the innermost is last
# Of a model in whose forward another one was called: ids of its modules, as long as nothing was put into any module.
_parts: WeakKeyDictionary[nn.Module, tuple[int, frozenset[int]]] = WeakKeyDictionary()
# Inside of ``torch.func``'s vmap or grad, no backward pass follows that a wrapper could wait for.
_transformed = getattr(torch._C, "_are_functorch_transforms_active", bool)


def call_through(model: Module, wrapper: nn.Module) -> Module:
    """``model``, whose calls go through ``wrapper`` from now on, which calls ``model`` in turn.

    Only where gradients are computed: an evaluation, a trace or an export is of the plain model.
    """
    count_registered()
    own = type(model)
    if _WRAPPER in vars(own):
        setattr(own, _WRAPPER, wrapper)
        return model
    members = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "__call__": _call,
        "__reduce_ex__": _reduce_ex,
        _WRAPPER: wrapper,
        "_rankup_class": own,
    }
    kind: Any = type(own)  # a class of classes, mostly type
    model.__class__ = kind(own.__name__, (own,), members)
    return model


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    # The wrapper calls the model, mostly: asked first.
    within = bool(_inside) and (_inside[-1] is self or any(_contains(outer, self) for outer in _inside))
    if within or "_is_replica" in self.__dict__ or not torch.is_grad_enabled() or _transformed():
        return self._rankup_class.__call__(self, *args, **kwargs)
    if (outer := getattr(DistributedDataParallel, "_active_ddp_module", None)) is not None:
        _check_ours(outer)
    _inside.append(self)
    try:
        return getattr(self, _WRAPPER)(*args, **kwargs)
    finally:
        _inside.pop()


def _check_ours(outer: Any) -> None:
    """An error if a DDP of the script's own is around the model: both reduce its gradients, into wrong ones."""
    if getattr(outer.module, _WRAPPER, None) is not outer:
        raise RankupError(
            "already-wrapped",
            "the script puts DistributedDataParallel around a model that run.prepare has wrapped already: its "
            "gradients would be reduced twice",
            hint="call the model that prepare returned, and leave out DistributedDataParallel",
            exit_code=1,
        )


def _contains(outer: nn.Module, module: nn.Module) -> bool:
    """Whether the wrapper of ``outer`` reduces the gradients of ``module`` already."""
    walked, parts = _parts.get(outer, (-1, frozenset()))
    if walked != registered():
        parts = frozenset(map(id, outer.modules()))
        _parts[outer] = (registered(), parts)
    return id(module) in parts


def _reduce_ex(self: Any, protocol: Any) -> Any:
    """What ``copy`` and ``pickle`` make another one from."""
    routed = type(self)
    self.__class__ = own = self._rankup_class
    try:
        made = self.__reduce_ex__(protocol)
    finally:
        self.__class__ = routed
    if isinstance(made, tuple) and made[0] is copyreg.__newobj__ and made[1] == (own,):  # type: ignore[attr-defined]
        # pickle refuses that one for an object of another class.
        return (copyreg._reconstructor, (own, object, None), *made[2:])  # type: ignore[attr-defined]
    return made
