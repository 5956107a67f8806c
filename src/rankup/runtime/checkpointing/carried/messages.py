"""The sentences about variables that a resume loses."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping

from rankup.runtime.checkpointing.carried.values import Value


def by_loop(values: Mapping[str, Value]) -> dict[str, list[str]]:
    """Names by the loop that carries them."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        if any(name.startswith(f"{other}.[") for other in values):
            continue  # the whole dict is named
        found.setdefault(value.where, []).append(name)
    return found


def listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def spoken(key: str) -> str:
    """``self.metrics["loss"]``; of a parameter ``smooth(seen=…)``."""
    said = ""
    for part in key.partition(":")[2].split("."):
        inside = {"[": f'["{part[1:-1]}"]', "(": f"({part[1:-1]}=…)"}
        said += inside.get(part[0], f".{part}")
    return said[1:]


def _short(key: str) -> str:
    """For an argument: of ``history["loss"]`` the dict."""
    return next(part for part in reversed(key.partition(":")[2].split(".")) if part[0] != "[").strip("()")


def advice(
    begun: Mapping[str, Value], values: Mapping[str, Value], names: list[str], registered: Container[str]
) -> str:
    """What to do, for the first one of each kind. ``registered``: the names of ``run.register(best=…)``'s values."""
    first: dict[str, str] = {}
    for name in names:
        kind = "container" if "[" in name and values[name].kind == "number" else values[name].kind
        first.setdefault(kind, name)
    said = []
    for kind, name in first.items():
        short = _short(name)
        if kind == "number" and short in registered:
            said.append(
                f"snapshots have values.{short} of values = run.register({short}=…), not the variable: write "
                f"values.{short} in place of {spoken(name)}"
            )
        elif kind == "number":
            said.append(
                f"values = run.register({short}=…) before the loop, and values.{short} in place of {spoken(name)}"
            )
        elif "(" in name:
            function = spoken(name).partition("(")[0]
            said.append(f"run.register({short}=…) before the loop, and pass that to {function} in each call")
        elif spoken(name).partition("[")[0].endswith("environ"):
            said.append(f"a number of values = run.register(…) before the loop in place of {spoken(name)}")
        elif kind == "container":
            whole = spoken(name).partition("[")[0]
            none = begun[name].text == "None"  # a registered None cannot become a dict
            first_value = f"begin {whole} with a value of its type instead of None, " if none else ""
            said.append(f"{first_value}run.register({short}={whole}) before the loop, and change it in place")
        elif kind == "module":
            said.append(
                f"run.register({short}={spoken(name)}) before the loop, and {short}.load_state_dict(…) instead of a "
                "new module"
            )
        elif kind == "objects":
            said.append(
                f"give the objects in {spoken(name)} the methods state_dict and load_state_dict, and run.register "
                "each of them before the loop"
            )
        else:
            said.append(
                f"compute {spoken(name)} from epoch.index or run.global_step, or register what it is made of"
            )
    return "; ".join(said)


def by_sample(values: Mapping[str, Value], lengths: Container[int]) -> str:
    """Of a tensor with a row for each sample: ranks see different samples. ``lengths``: of data sets."""
    name = next((spoken(name) for name, value in values.items() if value.rows and value.rows in lengths), "")
    if not name:
        return ""
    return (
        f"; {name} has a row for each sample, and each rank changes those of its own samples alone: "
        f"{name}[run.gather(indices)] = run.gather(new_rows) gives all ranks the same"
    )


def both(saved: str, now: str) -> str:
    if saved == now:  # a list of 1, twice
        return f"{now}, with other values than when it was saved"
    return f"{saved} when it was saved, {now} now"


def warn(said: str) -> None:
    print(f"warning: {said}", file=sys.stderr, flush=True)
