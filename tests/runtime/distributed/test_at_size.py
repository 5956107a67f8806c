"""What must not grow with the number of ranks, as one rank of many sees it: the others are pretended.

On both numbers of ranks the two ranks have all their neighbours in the tree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ranks import run_ranks
from rankup.messages.tree import FAN_OUT

ROOT = Path(__file__).parents[3]
SMALL, LARGE = 64, 256
MESSAGES = ("collectives", "bytes given", "bytes got", "store operations", "watch: store operations")


def simulated(size: int, folder: str) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    from benchmarks.one_of_many import simulate

    return simulate(size, 8, Path(folder))


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """By size: what each part of a training costs rank 0, an ordinary rank, and plain DDP."""
    folder = tmp_path_factory.mktemp("at-size")
    return {size: run_ranks(simulated, 1, size, str(folder / str(size)))[0] for size in (SMALL, LARGE)}


@pytest.mark.repeated
@pytest.mark.parametrize("who", ["rank 0", "rank 1"])
def test_a_step_sends_what_plain_ddp_sends_on_any_number_of_ranks(costs, who):
    for size in (SMALL, LARGE):
        mine, plain = costs[size][who]["step"], costs[size]["plain DDP"]["step"]
        assert [mine.get(name, 0) for name in MESSAGES] == [plain.get(name, 0) for name in MESSAGES]


@pytest.mark.parametrize("who", ["rank 0", "rank 1"])
def test_a_rank_tells_its_parent_and_its_children_alone_at_the_end_of_an_epoch(costs, who):
    neighbours = FAN_OUT + (who != "rank 0")
    for size in (SMALL, LARGE):
        found = costs[size][who]["end of an epoch"]
        assert found["send"] == found["receive"] == neighbours * found["exchanges"] > 0
    small, large = (costs[size][who]["end of an epoch"] for size in (SMALL, LARGE))
    assert [small.get(name, 0) for name in MESSAGES[:4]] == [large.get(name, 0) for name in MESSAGES[:4]]


@pytest.mark.parametrize("who", ["rank 0", "rank 1"])
@pytest.mark.parametrize("part", ["start", "first save", "save", "resume"])
def test_the_messages_of_an_exchange_do_not_grow_with_the_ranks(costs, who, part):
    """A long value is two messages."""
    for size in (SMALL, LARGE):
        found = costs[size][who][part]
        for way in ("send", "receive"):
            assert 0 < found[way] <= 2 * (FAN_OUT + 1) * found["exchanges"]
    assert costs[SMALL][who][part]["exchanges"] == costs[LARGE][who][part]["exchanges"]


@pytest.mark.parametrize("who", ["rank 0", "rank 1"])
def test_a_rank_is_connected_to_its_neighbours_in_two_trees_alone(costs, who):
    """Those of all ranks have the same neighbours; a node has one of its own."""
    for size in (SMALL, LARGE):
        run = costs[size][who]["run"]
        assert run["groups"] == 1
        assert 0 < run["neighbours"] <= 2 * (FAN_OUT + 1)


def test_a_save_costs_an_ordinary_rank_only_what_it_passes_on(costs):
    """It passes on what the nodes below it have written, which are the same here; the first rank hears of all."""
    small, large = (costs[size]["rank 1"]["save"]["bytes got"] for size in (SMALL, LARGE))
    assert (large - small) / (LARGE - SMALL) < 5


def test_a_snapshot_has_one_file_for_each_node_and_few_besides(costs):
    small, large = (costs[size]["rank 0"]["snapshot"] for size in (SMALL, LARGE))
    assert large["files"] - large["nodes"] == small["files"] - small["nodes"] <= 4
    assert large["nodes"] == LARGE / 8


@pytest.mark.parametrize("who", ["rank 0", "rank 1"])
def test_files_that_a_save_or_a_start_touches_do_not_grow_with_the_ranks(costs, who):
    for part in ("start", "save"):
        for name in ("fsyncs", "stats", "directory operations"):
            assert costs[LARGE][who][part].get(name, 0) == costs[SMALL][who][part].get(name, 0), (part, name)


def test_a_resume_reads_no_more_for_each_rank_that_there_is(costs):
    """Ranks tell each other little of what a snapshot has: what rank 0 has noted goes once to each."""
    small, large = (costs[size]["rank 0"]["resume"]["bytes got"] for size in (SMALL, LARGE))
    assert (large - small) / (LARGE - SMALL) < 500
