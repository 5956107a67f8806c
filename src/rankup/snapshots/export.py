"""The model of a snapshot as one file: for inference, for other libraries, and for use without the run.

As of ``run.save_model``, a name that ends in ``.safetensors`` gives that format, and any other that of ``torch.save``.
safetensors is a length, a JSON header and raw bytes (https://huggingface.co/docs/safetensors); it needs no library.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import torch

from rankup.core.files import replacing
from rankup.errors import RankupError
from rankup.snapshots.checksum import as_bytes
from rankup.snapshots.diff import load_tensor
from rankup.snapshots.layout import Entry
from rankup.snapshots.manifest import Manifest, SavedTensor
from rankup.snapshots.shards import dtype_of

_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip


def export(entry: Entry, manifest: Manifest, out: Path, part: str = "model") -> int:
    """Write the tensors whose names begin with ``part/``, without that prefix. Returns their number.

    A run names the parts of what it prepared ``0/model``, ``0/optimizer``, ``1/model``, …; ``model`` means the only one
    of these names. Raises RankupError if there is no such part or several, if the format lacks a dtype, or if ``out``
    exists.
    """
    tensors = _below(manifest.tensors, f"{_whole_part(entry, manifest, part)}/")
    if out.exists():
        raise RankupError("file-exists", f"{str(out)!r} already exists", hint="use another name")
    try:
        with replacing(out) as file:
            if out.suffix == ".safetensors":
                header = _header(tensors, manifest)
                file.write(struct.pack("<Q", len(header)) + header)
                for full in tensors.values():
                    file.write(as_bytes(load_tensor(entry, manifest, full)))  # one at a time in memory
            else:
                torch.save({name: load_tensor(entry, manifest, full) for name, full in tensors.items()}, file)
    except (OSError, RuntimeError) as error:  # torch.save makes an OSError a RuntimeError
        raise RankupError(
            "export-not-written",
            f"cannot write {str(out)!r}: {getattr(error, 'strerror', None) or error}",
            hint="use an existing, writable directory with enough free space",
            exit_code=1,
        ) from error
    return len(tensors)


def _whole_part(entry: Entry, manifest: Manifest, part: str) -> str:
    """``part``, or ``0/part`` if one model was prepared."""
    if _below(manifest.tensors, f"{part}/"):
        return part
    firsts = sorted({name.split("/")[0] for name in manifest.tensors})
    named = [
        f"{first}/{part}"
        for first in firsts
        if first.isdigit() and _below(manifest.tensors, f"{first}/{part}/")
    ]
    if len(named) == 1:
        return named[0]
    if named:
        raise RankupError(
            "several-parts",
            f"the run prepared {len(named)} models, so the snapshot has several parts named {part}",
            context=str(entry.path),
            hint=f"use --part with one of: {', '.join(named)}",
        )
    parts = sorted(
        {"/".join(name.split("/")[: 1 + name.split("/")[0].isdigit()]) for name in manifest.tensors}
    )
    raise RankupError(
        "nothing-to-export",
        f"the snapshot has no part named {part}",
        context=str(entry.path),
        hint=f"use --part with one of: {', '.join(parts)}" if parts else "the snapshot has no tensors",
    )


def _below(saved: dict[str, SavedTensor], prefix: str) -> dict[str, str]:
    """The name in the file → the name in the snapshot. Wide elements come first, which keeps all aligned."""
    names = [name for name in saved if name.startswith(prefix)]
    names.sort(key=lambda name: (-dtype_of(saved[name].dtype).itemsize, name))
    return {name.removeprefix(prefix): name for name in names}


def _header(tensors: dict[str, str], manifest: Manifest) -> bytes:
    """Names, dtypes, shapes and offsets as JSON, padded so that the data begins at a multiple of eight bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", "step": str(manifest.step)}}
    at = 0
    for name, full in tensors.items():
        saved = manifest.tensors[full]
        if saved.dtype not in _DTYPES:
            raise RankupError(
                "dtype-not-exportable",
                f"safetensors does not support the dtype {saved.dtype} of {full}",
                hint="convert the tensor in the model, or load the snapshot with rankup",
            )
        end = at + math.prod(saved.shape) * dtype_of(saved.dtype).itemsize
        header[name] = {"dtype": _DTYPES[saved.dtype], "shape": saved.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 8)
