"""Damaged programs: no rule fails or hangs on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankup.check.document import Document
from rankup.check.facts.program.reader import read_program
from rankup.check.registry import program_rules

CORPUS = Path(__file__).parents[1] / "corpus"
TEXTS = [path.read_text() for path in sorted(CORPUS.glob("prog-*/*.py"))]
TEXTS += [rule.fires[0] for rule in program_rules() if not rule.fires[0].startswith("---")]


def judge(text):
    program = read_program(Document("train.py", text))
    for rule in program_rules():
        for match in rule.matches(program):
            assert 0 <= match.span.start <= match.span.end <= len(match.document.text)
            match.document.place(match.span)
    return program


@st.composite
def mutilated(draw):
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        lines = text.split("\n")
        kind = draw(st.sampled_from(["cut", "drop", "twice", "swap", "char", "crlf", "indent", "word"]))
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        if kind == "cut":
            text = text[: draw(st.integers(0, len(text)))]
        elif kind == "drop":
            text = "\n".join(lines[:at] + lines[at + 1 :])
        elif kind == "twice":
            text = "\n".join(lines[: at + 1] + lines[at:])
        elif kind == "swap":
            other = draw(st.integers(0, max(0, len(lines) - 1)))
            lines[at], lines[other] = lines[other], lines[at]
            text = "\n".join(lines)
        elif kind == "char":
            where = draw(st.integers(0, len(text)))
            text = (
                text[:where] + draw(st.sampled_from(list("()[]{}'\"\\\n\r\t\0\x0cé€#:,.=*@ "))) + text[where:]
            )
        elif kind == "crlf":
            text = text.replace("\n", "\r\n", draw(st.integers(0, 5)))
        elif kind == "indent":
            lines[at] = "    " + lines[at]
            text = "\n".join(lines)
        else:
            word = draw(st.sampled_from(["rank", "model", "loader", "self", "dist", "epoch", "0", "None"]))
            other = draw(st.sampled_from(["rank", "model", "loader", "x", "lambda: 0", "*a", "1", "f(x)"]))
            text = text.replace(word, other, draw(st.integers(1, 3)))
    return text


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutilated())
def test_mutilated_programs(text):
    judge(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text):
    judge(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "\ufeff",
        "import torch\r\rx = 1\r",
        "x = 1\n" * 20_000,
        "x = '" + "a" * 1_000_000 + "'",
        "x = " + "[" * 5_000,
        "x = " + "-" * 50_000 + "1",
        "x = " + "a." * 3_000 + "b",
        "x = " + " + ".join(["a"] * 3_000),
        "if x:\n" * 1,
        "print 'Python 2'\nexec 'x'\n",
        "".join("    " * i + "if x:\n" for i in range(99)) + "    " * 99 + "pass\n",
        "def f(x):\n    return f(f(x))\nf(f)\n",
        "import torch\nx = x\ny = z\nz = y\ntorch.cuda.set_device(y)\n",
        "class A(A):\n    def m(self):\n        return self.m()\nA().m()\n",
        "import a\nfrom . import b\nfrom .. import c\nfrom .... import d\n",
        "import torch\ntorch.save(*a, **k)\ntorch.load(*a)\ntorch.cuda.set_device()\n",
        "a = b = lambda *a, **k: a(*a, **k)\na(b)(a)\n",
        "import torch.distributed as dist\nwhile dist.get_rank():\n    dist.barrier()\n",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_odd_texts(text):
    judge(text)


def test_modules_that_import_each_other_end():
    files = {
        name: Document(name, f"from {other} import *\nimport {other}\nx = {other}.x\nprint(x)\n")
        for name, other in (("a.py", "b"), ("b.py", "a"))
    }
    program = read_program(files["a.py"], None, files.get)
    for rule in program_rules():
        rule.matches(program)
    assert len(program.modules) <= 3


def test_no_name_of_torch_counts_as_misspelt():
    import importlib

    from rankup.check.rules.program import rk217_misspelt_name as rule

    pytest.importorskip("torch")
    for holder in rule._KNOWN:
        module = importlib.import_module(holder)
        assert [name for name in dir(module) if rule._right(f"{holder}.{name}")] == []
