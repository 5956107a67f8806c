"""Whatever stands in a file, reading and judging it ends, and ends without an exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankup.check.check import diagnostics, read_subjects
from rankup.check.document import Document

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path.read_text()
    for folder in (ROOT / "check" / "corpus", ROOT / "goldens" / "scripts")
    for path in sorted([*folder.rglob("*.sh"), *folder.rglob("*.pbs")])
    if path.stat().st_size < 8000
]


def found(text):
    subjects = read_subjects([Document("job.sh", text)], [], lambda _, name: None)
    for diagnostic in diagnostics(subjects):
        assert (
            0
            <= diagnostic.match.span.start
            <= diagnostic.match.span.end
            <= len(diagnostic.match.document.text)
        )
        assert diagnostic.finding.message
    return subjects.jobs[0]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutilated_scripts(data):
    text = SCRIPTS[data.draw(st.integers(0, len(SCRIPTS) - 1))]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 80)))
        text = text[:start] + data.draw(st.text(max_size=12) | st.sampled_from(PIECES)) + text[end:]
    found(text)


PIECES = ["'", '"', "$(", "`", "${", "$((", "<<EOF\n", "\\", "\\\n", "\r\n", "\0", "&", "|", "{", "(("]
PIECES += ["\ue000", "if ", "\t"]


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="#SBATCHP -=:ln\n\"'$(){}`\\<>|&;0aé\ue001", max_size=200))
def test_soups_of_characters(text):
    found(text)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300))
def test_bytes(raw):
    for encoding in ("utf-8", "utf-16", "latin-1"):
        found(raw.decode(encoding, errors="replace"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "#!/bin/bash",
        "#SBATCH --nodes=2",
        "#SBATCH",
        "#SBATCH --nodes",
        "#SBATCH -",
        "#PBS -l\n#PBS -l select=\n#PBS -l nodes=:+:\n",
        "#!/bin/csh\n#SBATCH --nodes=2\nset x = 1",
        "#!/usr/bin/env python3\n#SBATCH --nodes=2\nprint('x')",
        "x" * 1_000_000,
        "echo " + "a " * 500_000,
        "echo $(" * 3000,
        "( " * 3000 + " )" * 3000,
        "{ " * 2000,
        "if true; then " * 500 + "torchrun x.py" + "; fi" * 500,
        "a=1\n" + "a=$a$a\n" * 60 + "torchrun --nnodes=$a x.py",
        "f() { g; }\ng() { f; }\nf\n",
        "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}\n" for i in range(40))
        + "f40() { srun python x.py; }\nf0\n",
        "srun " * 500 + "python x.py",
        'bash -c "' * 200,
        "eval " * 500 + "python x.py",
        "a=b; " * 5000,
        "true && " * 2000 + "true",
        "cat > a.sh <<EOF\nbash a.sh\nEOF\nbash a.sh\n",
        "#SBATCH --nodes=2\nsrun bash -c '",
        "torchrun --nnodes=$((",
        "torchrun --nnodes=$((1/0)) --nproc_per_node=$((9**9**9)) x.py",
        "x=${a:-${b:-${c:-$(d ${e:-f})}}}",
        "\ud800 #SBATCH",
        "#!/bin/bash\n#SBATCH --nodes=2\n\0\1\2torchrun x.py",
    ],
    ids=lambda text: repr(text[:25]),
)
def test_odd_texts(text):
    found(text)


def test_directives_are_read_where_the_shell_is_not():
    assert found("#!/bin/tcsh\n#SBATCH --nodes=3\nset x = 1\n").request.nodes == 3
    assert found("#SBATCH --nodes=3\n" + "y" * 100_000).request.nodes == 3


@pytest.mark.slow
def test_scripts_that_rankup_writes_are_clean():
    for path in sorted((ROOT / "goldens" / "scripts").glob("*.sh")):
        subjects = read_subjects([Document(path.name, path.read_text())], [], lambda _, name: None)
        assert [(path.name, d.rule.code, d.match.message) for d in diagnostics(subjects)] == []
