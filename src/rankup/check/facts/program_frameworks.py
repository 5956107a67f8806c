"""The frameworks that a program uses."""

from __future__ import annotations

from rankup.check.facts.program_module import Module
from rankup.check.facts.program_names import FRAMEWORKS

#: Frameworks that only some of their names make one: transformers without a Trainer is models.
_NAMES = {
    "transformers": {
        "Trainer": "hf-trainer",
        "Seq2SeqTrainer": "hf-trainer",
        "TrainingArguments": "hf-trainer",
    },
    "submitit": {},
    "apex": {},
}
#: Imports of these alone say nothing: data formats, logs.
_HARMLESS = {"tensorflow", "jax", "nvidia"}


def frameworks_of(modules: list[Module]) -> frozenset[str]:
    found: set[str] = set()
    for module in modules:
        for name, level, names in module.imported:
            package = name.partition(".")[0]
            if level or not package:
                continue
            if package in FRAMEWORKS and package not in _HARMLESS:
                found.add(FRAMEWORKS[package])
            if package in {"lightning", "lightning_fabric"} and (
                "fabric" in name or "Fabric" in names or any("fabric" in part for part in names)
            ):
                found.add("fabric")
            if name.startswith("nvidia.dali"):
                found.add("dali")
            for part in names:
                known = _NAMES.get(package, {}).get(part)
                if known is not None:
                    found.add(known)
                elif package == "transformers" and part.endswith("Trainer"):
                    found.add("hf-trainer")
    return frozenset(found)
