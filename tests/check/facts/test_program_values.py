"""Where values come from: from the launcher's variables to the place that uses them."""

from __future__ import annotations

import ast

import pytest

from rankup.check.document import Document
from rankup.check.facts.program_reader import read_program
from rankup.check.facts.program_value import Kind, constants, kinds

HEAD = """
import os, argparse
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import distributed
"""


def program_of(text, **others):
    files = {name + ".py": Document(name + ".py", body) for name, body in others.items()}
    return read_program(Document("train.py", text), None, files.get)


def probed(body, **others):
    """What the argument of ``probe(...)`` can be."""
    program = program_of(HEAD + body, **others)
    (call,) = [call for call in program.calls if call.last == "probe"]
    return program.values.of(call.node.args[0], call.scope)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("probe(os.environ['RANK'])", {Kind.RANK}),
        ("probe(int(os.environ['SLURM_PROCID']))", {Kind.RANK}),
        ("probe(int(os.getenv('LOCAL_RANK')))", {Kind.LOCAL_RANK}),
        ("probe(dist.get_rank())", {Kind.RANK}),
        ("probe(distributed.get_world_size())", {Kind.WORLD_SIZE}),
        ("env = os.environ\nprobe(int(env['OMPI_COMM_WORLD_RANK']))", {Kind.RANK}),
        ("rank, world = dist.get_rank(), dist.get_world_size()\nprobe(world)", {Kind.WORLD_SIZE}),
        ("rank = dist.get_rank()\nprobe(rank % torch.cuda.device_count())", {Kind.LOCAL_RANK}),
        ("rank = dist.get_rank()\nrank = rank % 4\nprobe(rank)", {Kind.LOCAL_RANK}),
        ("def who():\n    return dist.get_rank(), 1\nr, w = who()\nprobe(r)", {Kind.RANK}),
        ("def f(r):\n    probe(r)\nf(int(os.environ['RANK']))", {Kind.RANK}),
        ("def f(r):\n    probe(r)\nf(r=int(os.environ['RANK']))", {Kind.RANK}),
        ("def f(i, n):\n    probe(i)\nmp.spawn(f, args=(4,), nprocs=4)", {Kind.LOCAL_RANK}),
        ("def f(i, n):\n    probe(n)\nmp.spawn(f, args=(4,), nprocs=4)", {Kind.CONSTANT}),
        (
            "class T:\n    def __init__(self):\n        self.r = dist.get_rank()\n"
            "    def g(self):\n        probe(self.r)",
            {Kind.RANK},
        ),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\na = p.parse_args()\n"
            "probe(a.local_rank)",
            {Kind.LOCAL_RANK},
        ),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--rank', type=int)\na = p.parse_args()\nprobe(a.rank)",
            {Kind.OPTION},
        ),
        ("a = object()\na.rank = int(os.environ['RANK'])\nprobe(a.rank)", {Kind.RANK}),
        ("probe(torch.device('cuda', dist.get_rank()))", {Kind.DEVICE}),
        ("probe(f'cuda:{dist.get_rank()}')", {Kind.DEVICE}),
        ("probe(dist.get_rank() == 0)", {Kind.TEST}),
        ("def is_main():\n    return dist.get_rank() == 0\nprobe(is_main())", {Kind.TEST}),
        (
            "node = int(os.environ['NODE_RANK'])\ndef f(i, n):\n    probe(node * n + i)\nmp.spawn(f, args=(4,))",
            {Kind.RANK},
        ),
        ("probe(something(3))", {Kind.OBJECT}),
        ("def f(x):\n    probe(x)", {Kind.UNKNOWN}),
        ("from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nprobe(comm.Get_rank())", {Kind.RANK}),
        ("probe(int(os.environ['CUDA_VISIBLE_DEVICES'].split(',')[0]))", {Kind.DEVICE_LIST}),
    ],
)
def test_an_origin_is_followed_to_its_use(body, expected):
    assert kinds(probed(body)) == expected


def test_a_default_is_an_alternative_and_not_a_constant_alone():
    value = probed("probe(int(os.environ.get('WORLD_SIZE', 1)))")
    assert kinds(value) == {Kind.WORLD_SIZE, Kind.CONSTANT}
    assert constants(value) == [1]


def test_both_branches_are_kept():
    value = probed("if x:\n    r = dist.get_rank()\nelse:\n    r = int(os.environ['LOCAL_RANK'])\nprobe(r)")
    assert kinds(value) == {Kind.RANK, Kind.LOCAL_RANK}


def test_a_value_set_later_in_a_loop_comes_around():
    value = probed(
        "r = dist.get_rank()\nfor i in range(3):\n    probe(r)\n    r = int(os.environ['LOCAL_RANK'])"
    )
    assert kinds(value) == {Kind.RANK, Kind.LOCAL_RANK}


def test_a_local_module_is_followed_and_a_missing_one_makes_the_program_incomplete():
    value = probed(
        "from who import rank_of\nprobe(rank_of())",
        who="import os\ndef rank_of():\n    return int(os.environ['RANK'])\n",
    )
    assert kinds(value) == {Kind.RANK}
    assert not program_of("import nowhere_to_be_found\nprint(1)\nnowhere_to_be_found.f()\n").whole
    assert program_of("import json\nprint(json.dumps(1))\n").whole


def test_names_are_resolved_through_a_local_module_that_imports_them():
    program = program_of(
        "from common import *\ndist.barrier()\nmain()\n", common="import torch.distributed as dist\n"
    )
    assert next(call.name for call in program.calls) == "torch.distributed.barrier"


def test_a_name_of_a_parameter_hides_an_import():
    program = program_of("import torch.distributed as dist\ndef f(dist):\n    dist.barrier()\n")
    assert not program.collectives


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("if dist.get_rank() == 0:\n    probe(1)", [True]),
        ("if dist.get_rank() != 0:\n    pass\nelse:\n    probe(1)", [True]),
        ("if not dist.get_rank():\n    probe(1)", [True]),
        ("if dist.get_rank():\n    probe(1)", [False]),
        ("def f():\n    if dist.get_rank() != 0:\n        return\n    probe(1)", [True]),
        ("for i in x:\n    if dist.get_rank() > 0:\n        continue\n    probe(1)", [True]),
        ("if 0 == dist.get_rank() and x:\n    probe(1)", [True]),
        ("if int(os.environ.get('LOCAL_RANK', -1)) in [-1, 0]:\n    probe(1)", [True]),
        ("def f():\n    probe(1)\nif dist.get_rank() == 0:\n    f()", [True]),
        ("def f():\n    probe(1)\nf()\nif dist.get_rank() == 0:\n    f()", []),
        ("@rank_zero_only\ndef f():\n    probe(1)\n", [True]),
        ("if is_main_process():\n    probe(1)", [True]),
        ("if dist.get_world_size() > 1:\n    probe(1)", []),
        ("dist.get_rank() == 0 and probe(1)", [True]),
    ],
)
def test_a_condition_on_the_rank_guards_what_it_holds(body, first):
    program = program_of(HEAD + body)
    (call,) = [call for call in program.calls if call.last == "probe"]
    assert [guard.test.first for guard in program.guards.everywhere(call.node, call.scope)] == first


def test_no_text_makes_it_fail():
    for text in ("", "\0", "x = (" * 500, "print 'two'", "((((" * 200, "\ufeffimport torch", "a" * 100_000):
        read_program(Document("a.py", text))
    read_program(Document("a.py", "x = " + "+".join("a" for _ in range(5000))))


def test_a_tree_can_be_dumped_again_after_reading():
    text = "import torch\nx = torch.ones(1)\n"
    program = read_program(Document("a.py", text))
    assert ast.unparse(program.modules[0].tree) == "import torch\nx = torch.ones(1)"
