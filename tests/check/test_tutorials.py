"""Pages in the manner of computing centres' tutorials, with planted mistakes: a page finds what its files find."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from rankup.check.paths import check_paths
from rankup.check.selection import Selection

PAGES = Path(__file__).parent / "tutorials"
_FENCE = re.compile(r"^([ \t]*)```.*\n((?:.*\n)*?)\1```$", re.M)
_DIRECTIVE = re.compile(r"^\.\. code-block::.*\n(?:   :.*\n)*\n((?:   .*\n|\n)+)", re.M)
# Page → (file → the blocks of the page that make it, the rules of what was planted in it).
FILES = {
    "torchrun.md": {
        "train.py": ((0, 1, 2), "RK201 RK201 RK211 RK302 RK303 RK306 RK401 RK402 RK502"),
        "job.sh": ((3,), "RK101 RK103 RK115 RK122 RK132"),
    },
    "srun.rst": {
        "job.sbatch": ((0,), "RK105 RK111 RK115 RK116 RK120 RK123 RK127"),
        "finetune.py": ((1, 2), "RK202 RK207 RK211 RK304 RK309 RK309 RK501 RK506"),
    },
    "pbs.md": {
        "job.pbs": ((0,), "RK114 RK115 RK124 RK146"),
        "segment.py": ((1,), "RK203 RK205 RK207 RK211 RK307 RK309"),
    },
    "lesson.ipynb": {
        "train.py": ((1,), "RK207 RK209 RK211 RK212 RK302 RK309 RK401"),
        "job.sh": ((2,), "RK104 RK308"),
    },
    "requeue.md": {
        "job.sh": ((0,), "RK112 RK115 RK118 RK129 RK131 RK148"),
        "pretrain.py": ((2, 3), "RK212 RK301 RK309 RK401"),
    },
}


def blocks(page: Path) -> list[str]:
    """The code of a page, by other means than those of check."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return [re.sub(r"^%%.*\n", "", cell) for cell in cells]
    if page.suffix == ".rst":
        return [textwrap.dedent(found).strip("\n") + "\n" for found in _DIRECTIVE.findall(text)]
    found = [textwrap.dedent(body) for _, body in _FENCE.findall(text)]
    return [re.sub(r"\A *cat .*\n|^ *EOF\n", "", body, flags=re.M) for body in found]


def lines_of(path: Path) -> list[str]:
    """The lines of a file; of a notebook, what JSON writes in them."""
    lines = path.read_text().split("\n")
    if path.suffix == ".ipynb":
        return [json.loads(line.strip(" ,")) if line.startswith('    "') else line for line in lines]
    return lines


def lines_found(path: Path) -> list[tuple[str, str]]:
    """(rule, the line that it names) of each finding."""
    found = [
        (diagnostic.rule.code, diagnostic.place)
        for diagnostic in check_paths([path], Selection(), None).diagnostics
    ]
    return sorted((code, lines_of(Path(place.path))[place.line - 1].strip()) for code, place in found)


@pytest.mark.parametrize("name", FILES)
def test_a_page_finds_what_its_files_find_and_where(name, tmp_path):
    shown = blocks(PAGES / name)
    for file, (numbers, _) in FILES[name].items():
        (tmp_path / file).write_text("\n".join(shown[number] for number in numbers))
    of_files = lines_found(tmp_path)
    planted = [code for _, codes in FILES[name].values() for code in codes.split()]
    assert not Counter(planted) - Counter(code for code, _ in of_files)
    assert lines_found(PAGES / name) == of_files
