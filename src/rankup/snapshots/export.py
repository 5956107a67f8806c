"""The model of a snapshot as one file: for inference, for other libraries, and for use without the run.

As of ``run.save_model``, a name that ends in ``.safetensors`` gives that format, and any other that of ``torch.save``.
safetensors is a length, a JSON header and raw bytes (https://huggingface.co/docs/safetensors); it needs no library.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from rankup.core.files import replacing
from rankup.errors import RankupError
from rankup.snapshots.diff import load_tensor, registered
from rankup.snapshots.layout import Entry
from rankup.snapshots.manifest import Manifest
from rankup.snapshots.shards import dtype_of
from rankup.snapshots.tensor_checksum import as_bytes

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


class _Tensor(NamedTuple):
    """``dtype`` is a name of torch."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]


def export(entry: Entry, manifest: Manifest, out: Path, part: str = "model") -> int:
    """Write the tensors of a part of the state under their names in it, in its order. Returns their number.

    A run names the parts of what it prepared ``0/model``, ``0/optimizer``, ``1/model``, …; ``model`` means the only one
    of these names. What was registered and has a ``state_dict`` of tensors is a part under its own name.

    Raises RankupError if no part has this name or several have it, if the format lacks a dtype, or if ``out`` exists.
    """
    tensors = _part(entry, manifest, part)
    if out.exists():
        raise RankupError("file-exists", f"{str(out)!r} already exists", hint="use another name")
    try:
        with replacing(out) as file:
            if out.suffix == ".safetensors":
                # Wide elements come first, which keeps all aligned.
                tensors = dict(sorted(tensors.items(), key=lambda each: -dtype_of(each[1].dtype).itemsize))
                header = _header(tensors, manifest.step)
                file.write(struct.pack("<Q", len(header)) + header)
                for tensor in tensors.values():
                    file.write(as_bytes(tensor.read()))  # one at a time in memory
            else:
                torch.save({name: tensor.read() for name, tensor in tensors.items()}, file)
    except (OSError, RuntimeError) as error:  # torch.save makes an OSError a RuntimeError
        raise RankupError(
            "export-not-written",
            f"cannot write {str(out)!r}: {getattr(error, 'strerror', None) or error}",
            hint="use an existing, writable directory with enough free space",
            exit_code=1,
        ) from error
    return len(tensors)


def _part(entry: Entry, manifest: Manifest, part: str) -> dict[str, _Tensor]:
    """The tensors of ``part``, or of ``0/part`` if one model was prepared."""
    models = sorted({first for name in manifest.tensors if (first := name.split("/")[0]).isdigit()})
    prepared = {
        name: tensors
        for name in (part, *(f"{model}/{part}" for model in models))
        if (tensors := _below(entry, manifest, f"{name}/"))
    }
    if part not in prepared and len(prepared) > 1:
        raise RankupError(
            "several-parts",
            f"the run prepared {len(prepared)} models, so the snapshot has several parts named {part}",
            context=str(entry.path),
            hint=f"use --part with one of: {', '.join(prepared)}",
        )
    others = {} if prepared else _registered(entry, manifest)
    found = others.get(part) or prepared.get(part) or next(iter(prepared.values()), None)
    if found is None:
        parts = {"/".join(name.split("/")[: 1 + name.split("/")[0].isdigit()]) for name in manifest.tensors}
        parts |= others.keys()
        kept = part in registered(entry, manifest)
        raise RankupError(
            "nothing-to-export",
            f"{part} is registered, but has no state_dict of tensors: only a resume can restore it"
            if kept
            else f"the snapshot has no part named {part}",
            context=str(entry.path),
            hint=f"use --part with one of: {', '.join(sorted(parts))}"
            if parts
            else "the snapshot has no tensors",
        )
    return found


def _below(entry: Entry, manifest: Manifest, prefix: str) -> dict[str, _Tensor]:
    return {
        name.removeprefix(prefix): _Tensor(
            saved.dtype, saved.shape, partial(load_tensor, entry, manifest, name)
        )
        for name, saved in manifest.tensors.items()
        if name.startswith(prefix)
    }


def _registered(entry: Entry, manifest: Manifest) -> dict[str, dict[str, _Tensor]]:
    """The registered things whose state has tensors by name, as that of a module does."""
    found: dict[str, dict[str, _Tensor]] = {}
    for name, held in registered(entry, manifest).items():
        tensors = {
            key: _Tensor(
                str(value.dtype).removeprefix("torch."), tuple(value.shape), partial(torch.clone, value)
            )
            for key, value in (held.items() if isinstance(held, dict) else ())
            if isinstance(value, torch.Tensor)
        }
        found |= {name: tensors} if tensors else {}
    return found


def _header(tensors: dict[str, _Tensor], step: int) -> bytes:
    """Names, dtypes, shapes and offsets as JSON, padded so that the data begins at a multiple of eight bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", "step": str(step)}}
    at = 0
    for name, saved in tensors.items():
        if saved.dtype not in _DTYPES:
            raise RankupError(
                "dtype-not-exportable",
                f"safetensors does not support the dtype {saved.dtype} of {name}",
                hint="convert the tensor in the model, or load the snapshot with rankup",
            )
        end = at + math.prod(saved.shape) * dtype_of(saved.dtype).itemsize
        header[name] = {"dtype": _DTYPES[saved.dtype], "shape": list(saved.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 8)
