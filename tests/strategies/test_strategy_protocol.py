"""The protocol of strategies is closed: a new strategy is one file and one row; no other module knows its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import ByHand
from torch import nn
from torch.nn import functional as F
from toy import Toy, data, largest_difference

import rankup
from ranks import run_ranks
from rankup.core.registry import load
from rankup.strategies import EXACT, STRATEGIES, Strategy, StrategyRow
from rankup.train.options import TrainOptions
from rankup.train.parallel import strategy_for
from rankup.workloads.linear import Linear

# ---------------------------------------------------------------- one file and one row

CASES: dict[str, dict[str, Any]] = {
    "plain backward and a short last batch": {"plain": True},
    "a rank without samples": {"samples": 17, "world": 3},
    "accumulation with empty micro-batches": {"samples": 17, "options": {"accumulate": 3}},
}


def trained(name: str, folder: str = "", epochs: int = 2, **case: Any) -> dict[str, torch.Tensor]:
    """The weights after some epochs, by the public library alone."""
    STRATEGIES["by-hand"] = StrategyRow("by_hand:ByHand", for_scripts=True)
    snapshots = rankup.Snapshots(directory=folder) if folder else None
    run = rankup.init(seed=2, precision="fp64", strategy=name, snapshots=snapshots)
    model, opt, feed = run.prepare(
        Toy(),
        lambda parameters: torch.optim.Adam(parameters, lr=0.02),
        data(case.get("samples", 22)),
        global_batch=8,
        **case.get("options", {}),
    )
    counted = 0
    for x, y in run.steps(feed, epochs=epochs):
        loss = F.mse_loss(model(x), y)
        counted += run.batch.samples
        if case.get("plain"):
            loss.backward()
            opt.step()
            opt.zero_grad()
        else:
            run.backward(loss)
            run.step(opt)
    assert folder or run.sum(counted) == case.get("samples", 22) * epochs
    assert run.sum(sum(len(x) for x, _ in run.batches(data(13), global_batch=4))) == 13
    assert run.strategy.name == ("none" if run.world.world_size == 1 else name)
    return {key: value.detach().clone() for key, value in run._context.models[0].state_dict().items()}


@pytest.mark.repeated
@pytest.mark.parametrize("case", CASES)
def test_a_strategy_of_one_file_and_one_row_trains_as_one_process_does(case):
    what = dict(CASES[case])
    ranks = run_ranks(_trained, what.pop("world", 2), "by-hand", what)
    (alone,) = run_ranks(_trained, 1, "by-hand", what)
    for weights in ranks:
        assert largest_difference(weights, ranks[0]) == 0
        assert largest_difference(weights, alone) < 1e-12


@pytest.mark.slow
def test_a_strategy_of_one_file_saves_and_resumes(tmp_path):
    run_ranks(_trained, 2, "by-hand", {"folder": str(tmp_path), "epochs": 1})
    resumed = run_ranks(_trained, 2, "by-hand", {"folder": str(tmp_path), "epochs": 2})
    whole = run_ranks(_trained, 2, "by-hand", {})
    assert largest_difference(resumed[1], whole[1]) == 0


def _trained(name: str, case: dict[str, Any]) -> dict[str, torch.Tensor]:
    return trained(name, **case)


def refusals() -> list[str]:
    run = rankup.init(strategy=ByHand())
    said = []
    for options, optimizer in (
        ({"clip": 1.0}, lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
        ({}, torch.optim.LBFGS),
    ):
        with pytest.raises(rankup.RankupError) as caught:
            run.prepare(nn.Linear(6, 3), optimizer, data(8), global_batch=4, **options)
        said.append(f"{caught.value.code}: {caught.value.message}")
    return said


def test_what_a_strategy_refuses_is_its_own_error():
    assert run_ranks(refusals, 2)[1] == [
        "not-by-hand: by-hand does not clip",
        "not-by-hand: by-hand has no closures",
    ]


def test_a_row_is_all_that_the_command_line_needs(monkeypatch):
    row = StrategyRow("by_hand:ByHand", options=("microbatches",), refuses=("accumulate",))
    with pytest.raises(rankup.RankupError, match="--strategy by-hand"):
        TrainOptions("module:Thing", "thing", strategy="by-hand")
    monkeypatch.setitem(STRATEGIES, "by-hand", row._replace(options=()))
    chosen = TrainOptions("module:Thing", "thing", strategy="by-hand")
    assert isinstance(strategy_for(chosen, Linear()), ByHand)
    with pytest.raises(rankup.RankupError, match="--accumulate 2 with --strategy by-hand"):
        TrainOptions("module:Thing", "thing", strategy="by-hand", accumulate=2)
    with pytest.raises(rankup.RankupError, match="--microbatches 2 with --strategy by-hand"):
        TrainOptions("module:Thing", "thing", strategy="by-hand", microbatches=2)
    monkeypatch.setitem(STRATEGIES, "by-hand", row)
    TrainOptions("module:Thing", "thing", strategy="by-hand", microbatches=2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_row_says_what_its_class_says(name):
    row = STRATEGIES[name]
    strategy: Any = load(row.target)
    assert strategy.name == name
    assert strategy.one_process == row.one_process
    module = row.target.partition(":")[0]
    assert module.rpartition(".")[2] == name  # a noun of the interface is a file
    refused = {option.partition("=")[2] or option for option in row.refuses}
    features = set(strategy.refuses) & {"accumulate", "fp16", "sync_batchnorm"}
    assert features <= refused


# ------------------------------------------------------------------ no other module knows a strategy's class

SOURCES = Path(rankup.__file__).parent
CONCRETE = {
    target.partition(":")[0]
    for target in (*(row.target for row in STRATEGIES.values()), *filter(None, EXACT.values()))
}
CLASSES = {
    target.partition(":")[2]
    for target in (*(row.target for row in STRATEGIES.values()), *filter(None, EXACT.values()))
}


def looks_behind(tree: ast.AST) -> Iterator[str]:
    """What in a module outside of strategies/ depends on a certain strategy, one line for each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if {node.module, f"{node.module}.{alias.name}"} & CONCRETE:
                    yield f"{node.lineno}: imports {node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in CONCRETE:
                    yield f"{node.lineno}: imports {alias.name}"
        elif isinstance(node, ast.Call) and _last(node.func) in ("isinstance", "issubclass"):
            for each in ast.walk(node.args[1]):
                if _last(each) in CLASSES:
                    yield f"{node.lineno}: isinstance with {_last(each)}"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {c.value for side in sides for c in ast.walk(side) if isinstance(c, ast.Constant)}
            if any(_is_name(side) or (_is_strategy(side) and names & {*STRATEGIES}) for side in sides):
                yield f"{node.lineno}: compares the name of a strategy"
        elif isinstance(node, ast.Attribute) and _is_strategy(node.value):
            # Options and records have a field of this name, which is a string.
            if not hasattr(Strategy, node.attr) and node.attr != "name":
                yield f"{node.lineno}: reads {node.attr}, which the protocol does not have"
        elif isinstance(node, ast.Call) and _last(node.func) in ("getattr", "hasattr", "vars"):
            yield from (f"{node.lineno}: looks into a strategy" for arg in node.args[:1] if _is_strategy(arg))


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_strategy(node: ast.AST) -> bool:
    return _last(node).strip("_") == "strategy"


def _is_name(node: ast.AST) -> bool:
    """``strategy.name``; and what ``choices.py`` calls one that is not chosen yet."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "name"
        and (_is_strategy(node.value) or _last(node.value) in ("wanted", "chosen"))
    )


def test_no_module_outside_strategies_depends_on_a_certain_one():
    outside = [path for path in SOURCES.rglob("*.py") if SOURCES / "strategies" not in path.parents]
    assert len(outside) > 200
    found = [
        f"{path.relative_to(SOURCES)}:{what}"
        for path in outside
        for what in looks_behind(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "from rankup.strategies.any_world import AnyWorld",
        "from rankup.strategies.experimental import pp",
        "import rankup.strategies.ddp",
        "isinstance(run.strategy, AnyWorld)",
        "isinstance(x, (int, base.FSDP))",
        'run.strategy.name == "pp"',
        'wanted.name != "dp"',
        "self._strategy.name in KNOWN",
        'options.strategy in ("none", "dp")',
        "strategy.shards",
        'getattr(run.strategy, "shards", 0)',
    ],
)
def test_each_way_to_look_behind_the_protocol_is_found(code):
    assert len(list(looks_behind(ast.parse(code)))) == 1


def test_what_everybody_may_do_with_a_strategy_is_not_found():
    code = (
        'run.strategy.check("clip"); print(run.strategy.name); options.strategy == "auto"; strategy.lockstep'
    )
    assert list(looks_behind(ast.parse(code))) == []


def test_no_torch_is_loaded_for_the_table():
    text = (SOURCES / "strategies" / "__init__.py").read_text()
    assert not re.search(r"^(import|from) torch", text, re.M)
