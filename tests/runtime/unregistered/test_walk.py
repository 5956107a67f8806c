"""One look at what a script holds: what it finds, and that it runs nothing of the script."""

from __future__ import annotations

from typing import Any

import torch

from rankup.runtime.unregistered.marks import mark_of
from rankup.runtime.unregistered.walk import Walk

ran: list[str] = []


class Asked:
    """Notes whatever runs of it."""

    def __init__(self) -> None:
        self.held = [1]

    @property
    def number(self) -> int:
        ran.append("property")
        raise RuntimeError

    def __getattr__(self, name: str) -> Any:
        ran.append(f"__getattr__ {name}")
        raise AttributeError(name)

    def state_dict(self) -> dict[str, Any]:
        ran.append("state_dict")
        return {}

    def __repr__(self) -> str:
        ran.append("__repr__")
        return ""

    def __len__(self) -> int:
        ran.append("__len__")
        return 0

    def __iter__(self) -> Any:
        ran.append("__iter__")
        return iter(())

    def __eq__(self, other: object) -> bool:
        ran.append("__eq__")
        return False

    def __hash__(self) -> int:
        return 0


class AskedModule(torch.nn.Module):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        ran.append("state_dict")
        return {}


def test_a_look_runs_nothing_of_the_script():
    asked = Asked()
    things = {
        "asked": asked,
        "items": [asked, 1],
        "table": {"a": asked},
        "module": AskedModule(),
        "set": {1, 2},
    }
    ran.clear()
    walk = Walk(set()).look(things)
    assert ran == []
    assert "asked.held" in walk.found


def test_a_path_is_how_the_script_writes_it():
    things = {"a": {"b": [Asked()]}, ("x"): 1}
    assert {"a['b'][0].held", "x"} <= Walk(set()).look(things).found.keys()


def test_a_message_has_six_digits_of_a_number_and_the_comparison_has_all():
    third, near = mark_of(1 / 3), mark_of(1 / 3 + 1e-15)
    assert third is not None and near is not None
    assert (third.text, third.digest == near.digest) == ("0.333333", False)
