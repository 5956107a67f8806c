"""torch about snapshots and data sets."""

from __future__ import annotations

from rankup.explain.signatures.signature import ROOT, Signature

FILES = (
    Signature(
        name="corrupt-file",
        pattern=(
            r"PytorchStreamReader failed|EOFError: Ran out of input|EOFError\n@ .*(?:serialization"
            r"|unpickler)\.py|invalid magic number; corrupt file"
            r"|unexpected EOF, expected \d+ more bytes|storage has wrong (byte )?size"
            "|invalid load key|SafetensorError|not a gzip file|BadZipFile"
        ),
        level=ROOT,
        what="a file is damaged or incomplete",
        cause=(
            "it was cut off while it was written (a kill, a full disk), or several ranks wrote it "
            "at the same time"
        ),
        fix=(
            "take an older snapshot; save on rank 0 only, to a temporary name that is renamed "
            "(`rankup snapshots verify` finds damage)"
        ),
        example=(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
        ),
        rules=("RK401",),
    ),
    Signature(
        name="weights-only",
        pattern="Weights only load failed",
        level=ROOT,
        what="torch.load refuses a file that holds more than tensors",
        cause=(
            "since torch 2.6 torch.load takes weights_only=True as default, and the file has "
            "objects of other classes"
        ),
        fix=(
            "save state_dicts and numbers only; for a file that you trust torch.load(…, weights_only=False)"
        ),
        example="_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
    ),
    Signature(
        name="cuda-snapshot",
        pattern="Attempting to deserialize object on (a )?CUDA device",
        level=ROOT,
        what="a snapshot was saved on a GPU that does not exist here",
        cause=(
            "torch.load puts tensors where they were saved: on a machine without GPUs, or with "
            "fewer, it fails"
        ),
        fix='torch.load(…, map_location="cpu")',
        example=(
            "RuntimeError: Attempting to deserialize object on a CUDA device but "
            "torch.cuda.is_available() is False."
        ),
        rules=("RK402",),
    ),
    Signature(
        name="save-failed",
        pattern=r"basic_ios::clear: iostream error|PytorchStreamWriter failed|unexpected pos \d+ vs \d+",
        level=ROOT,
        what="torch.save could not write its file",
        cause="most often the disk or the quota is full, or the folder is gone",
        fix="`df -h` and `df -i` of that folder, and the quota; delete old snapshots",
        example="RuntimeError: basic_ios::clear: iostream error",
        likely=True,
    ),
    Signature(
        name="dataset-corrupt",
        pattern="Dataset not found or corrupted",
        level=ROOT,
        what="the data set is missing or incomplete",
        cause="it was not downloaded, or several ranks downloaded it at the same time",
        fix="download before the job (`rankup data fetch`), or on one rank with a barrier after it",
        example="RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
        rules=("RK306",),
    ),
)
