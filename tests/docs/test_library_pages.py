"""The pages of the library: the program of the first one runs, and what documents call is there as they call it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import rankup
from pages import ROOT, blocks
from rankup.runtime.checkpointing.run_state import RunState
from rankup.runtime.loop.run_strategy import RunStrategy
from rankup.runtime.prepare import LoaderArguments, PrepareArguments

REFERENCE = ROOT / "docs" / "reference"
WHOLE = (REFERENCE / "library-in-full.md").read_text()
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.parent.name not in ("rules", "adr")  # scripts of others; what was decided when
]
#: What documents call by a name, and the classes of those attributes of a run that are called further.
OBJECTS = {"run": rankup.Run, "rankup": rankup, "meter": rankup.Meter}
ATTRIBUTES = {"meter": rankup.Meter, "state": RunState, "strategy": RunStrategy, "world": rankup.World}
#: What is passed on to the DataLoader.
LOADER = {*inspect.signature(DataLoader).parameters}
PASSED_ON = {rankup.Run.prepare: {*PrepareArguments.__annotations__} | LOADER, rankup.Run.batches: LOADER}


def calls(text: str) -> Iterator[ast.Call]:
    """The calls of Python in the code of ``text``: its blocks of Python, and its words in backticks."""
    code = re.findall(r"^ *```python\n(.*?)^ *```$", text, re.M | re.S)
    code += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.S))
    for one in code:
        try:
            tree = ast.parse(inspect.cleandoc(one).replace("…", "..."))
        except SyntaxError:  # a shell's command, a part of a statement
            continue
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called(call: ast.Call) -> Callable[..., Any] | None:
    """The function of the library that ``call`` is for; None for one of somebody else."""
    names = ast.unparse(call.func).split(".")
    if names[0] not in OBJECTS or len(names) == 1 or not all(name.isidentifier() for name in names):
        return None
    found: Any = OBJECTS[names[0]]
    for name in names[1:]:
        found = (
            ATTRIBUTES.get(name) if found is rankup.Run and name in ATTRIBUTES else getattr(found, name, None)
        )
    assert found is not None, f"{ast.unparse(call)}: there is no {'.'.join(names)}"
    return found if callable(found) else None


def wrong_arguments(call: ast.Call, function: Callable[..., Any]) -> str:
    """Why ``function`` would not take the arguments of ``call``; "" if it would. ``...`` stands for any others."""
    parameters = inspect.signature(function)
    own = [None] if "self" in parameters.parameters else []
    positional = [one for one in call.args if not (isinstance(one, ast.Constant) and one.value is ...)]
    keywords = [one.arg for one in call.keywords if one.arg]
    try:
        parameters.bind_partial(*own, *positional, **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    known = PASSED_ON.get(function)
    unknown = [one for one in keywords if known and one not in known and one not in parameters.parameters]
    return f"no argument {unknown}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_page_calls_takes_what_the_page_gives(page: Path):
    found = [(call, called(call)) for call in calls(page.read_text())]
    wrong = {
        ast.unparse(call): why
        for call, function in found
        if function and (why := wrong_arguments(call, function))
    }
    assert wrong == {}


def test_a_call_that_the_library_does_not_take_is_found():
    (call, other, gone) = calls(
        "`run.steps(data, epoch=3)` `run.prepare(model, opt, …, batch=4)` `run.fit()`"
    )
    assert "epoch" in wrong_arguments(call, rankup.Run.steps)
    assert "batch" in wrong_arguments(other, rankup.Run.prepare)
    with pytest.raises(AssertionError, match=r"there is no run\.fit"):
        called(gone)


def arguments() -> set[tuple[str, str]]:
    """(function, argument) of all that is public and may be given by name."""
    functions = {f"run.{name}": function for name, function in vars(rankup.Run).items() if name[0] != "_"}
    functions |= {
        f"rankup.{name}": getattr(rankup, name) for name in ("init", "first", "Snapshots", "Retention")
    }
    own = PrepareArguments.__annotations__.keys() - LoaderArguments.__annotations__.keys()
    return {("run.prepare", name) for name in own} | {
        (name, one.name)
        for name, function in functions.items()
        if callable(function)
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.KEYWORD_ONLY or one.default is not one.empty
    }


def test_the_whole_library_names_every_argument():
    code = " ".join(re.findall(r"`[^`\n]+`|^```.*?^```$", WHOLE, re.S | re.M))
    assert {(name, one) for name, one in arguments() if not re.search(rf"\b{one}\b", code)} == set()


def test_the_signature_of_init_is_that_of_the_code():
    (shown,) = re.findall(r"^(rankup\.init\(\*.*?\)) -> Run$", WHOLE, re.M | re.S)
    call = ast.parse(shown.replace("*, ", ""), mode="eval").body
    assert isinstance(call, ast.Call)
    (made,) = ast.parse(inspect.getsource(rankup.init)).body
    assert isinstance(made, ast.FunctionDef)
    defaults = zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
    assert [(one.arg, ast.unparse(one.value)) for one in call.keywords] == [
        (name.arg, ast.unparse(default)) for name, default in defaults if default
    ]


def test_the_program_of_the_first_page_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(REFERENCE / "library.md", "python")
    data = TensorDataset(torch.randn(96, 4), torch.arange(96) % 3)
    exec(program, {"Network": lambda: torch.nn.Linear(4, 3), "train": data, "test": data})
    assert torch.load("best.pt")["weight"].shape == (3, 4)
