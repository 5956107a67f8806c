"""Names of columns, and what they hold. A column whose name is not here is named as not read."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "devices": "devices|gpus|gpu|gpu count|num gpus|n gpus|processes|ranks|workers|nproc|world size|cores",
    "nodes": "nodes|num nodes|node count",
    "per-node": "gpus per node|devices per node|processes per node|gpus/node|nproc per node|per node",
    "time": "time|training time|train time|total time|wall time|wall clock time|run time|runtime|duration|elapsed|"
    "seconds|epoch time|time per epoch|time/epoch",
    "step-time": "step time|time per step|time/step|iteration time|time per iteration|time per batch",
    "rate": "throughput|rate|samples/s|samples/sec|samples per second|images/s|images/sec|images per second|img/s|"
    "img/sec|tokens/s|tokens/sec|tokens per second",
    "batch": "global batch|global batch size|total batch|total batch size|effective batch|effective batch size",
    "local-batch": "batch per gpu|batch size per gpu|batch/gpu|batch per device|batch size per device|local batch|"
    "local batch size|per gpu batch|per gpu batch size|per device batch size|micro batch|micro batch size",
    "some-batch": "batch|batch size|bs",
    "accumulate": "accumulate|accumulation|accumulation steps|gradient accumulation|gradient accumulation steps|"
    "grad accum|grad accumulation|grad accum steps",
    "speedup": "speedup|speed up",
    "efficiency": "efficiency|scaling efficiency|parallel efficiency",
    "repeats": "runs|repeats|repetitions|num runs|n runs",
    "accuracy": "accuracy|test accuracy|val accuracy|validation accuracy|acc|top 1|top 1 accuracy",
    # What has to be equal: facts by the names of `rankup.scale.work`.
    "precision": "precision|dtype|data type|amp|mixed precision",
    "model": "model|network|architecture",
    "data": "data|dataset|data set",
    "inputs": "input size|image size|resolution|sequence length|seq len|seq length",
    "samples": "samples|images|training samples|num samples",
    "steps": "steps|iterations|optimizer steps",
    "epochs": "epochs",
    "optimizer": "optimizer",
    "lr": "lr|learning rate",
    "strategy": "strategy|parallelism",
    "device": "device|gpu model|gpu type|hardware",
    "compile": "compile|torch.compile",
    "torch": "torch|pytorch|torch version|pytorch version",
}  # fmt: skip
ROLES = {name: role for role, names in _NAMES.items() for name in names.split("|")}
# Facts that a table tells as text, in the order of the output.
FACTS = ("strategy", "model", "data", "device", "inputs", "optimizer", "lr", "epochs", "compile", "torch")


@dataclass(frozen=True)
class Column:
    """``unit`` stands in the header's brackets; ``of_one``: the header says that it is of a single device."""

    header: str
    role: str
    unit: str = ""
    of_one: bool = False


def column_of(header: str) -> Column:
    """By its name alone: ``Time (s)``, ``global_batch``, ``**Throughput** [img/s]``."""
    text = re.sub(r"[*`]", "", header).replace("_", " ").replace("-", " ").lower().strip()
    named = re.fullmatch(r"(.*?)\s*(?:[(\[]\s*(.*?)\s*[)\]])?", text)
    name, unit = (named[1], named[2] or "") if named else (text, "")
    name = re.sub(r"^(?:#|number of|no\.? of)\s*", "", re.sub(r"\s+", " ", name))
    if name not in ROLES and (behind := re.fullmatch(r"(.*) (s|sec|ms|min|h|hours|minutes|seconds)", name)):
        name, unit = behind[1], behind[2]
    of_one = re.search(r"\s*(?:per |/ ?)(?:gpu|device)$", name if name not in ROLES else unit)
    if of_one and name not in ROLES:
        name = name[: of_one.start()]
    if name == "seconds":
        unit = "s"
    return Column(header.strip(), ROLES.get(name, ""), unit, of_one is not None)
