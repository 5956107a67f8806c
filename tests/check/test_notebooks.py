"""A notebook: cells are blocks of a page, those of the kernel are one program."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.check.document import Document, Span
from rankup.check.pages.joining import page_documents


def notebook(*cells: str, language: str = "python") -> Document:
    made = [
        {
            "cell_type": "markdown" if cell.startswith("# ") else "code",
            "source": cell.splitlines(keepends=True),
        }
        for cell in cells
    ]
    text = json.dumps({"cells": made, "metadata": {"kernelspec": {"language": language}}}, indent=1)
    return Document("lesson.ipynb", text, name="lesson.ipynb")


def test_cells_of_the_kernel_are_one_program_without_commands_of_the_notebook():
    _, (program,) = page_documents(
        notebook(
            "%load_ext x\nimport torch",
            "# Data",
            "!pip install a \\\n   b\nx = !ls\nif x:\n    !cat a\nx = torch.ones(1)",
        )
    )
    assert program.complete
    assert program.text == "pass\nimport torch\npass\n\npass\nif x:\n    pass\nx = torch.ones(1)\n"


def test_a_place_names_the_line_of_the_file_and_of_the_cell():
    page = notebook("# Text", "import torch\nprint('a \"quoted\" word')\nx = 1")
    _, (program,) = page_documents(page)
    place = program.place(Span(program.text.index("x ="), program.text.index("x =") + 1))
    assert (place.cell, place.cell_line, place.column) == (2, 3, 1)
    assert page.text.split("\n")[place.line - 1].strip() == '"x = 1"'
    assert str(place) == "lesson.ipynb:cell 2:3:1" and program.line_name(3) == "line 3 of cell 2"


@pytest.mark.parametrize(
    "cell", ["%%bash\n{}", "%%writefile job.sh\n{}", "%%writefile -a job.sh\n{}", "%%script bash\n{}"]
)
def test_scripts_in_cells_are_job_scripts(cell):
    script = "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py"
    (job,), programs = page_documents(notebook(cell.format(script)))
    assert (job.text, job.complete, programs) == (f"{script}\n", True, [])


def test_a_notebook_of_bash_holds_scripts():
    (job,), _ = page_documents(notebook("#SBATCH --nodes=2\nsrun python train.py", language="bash"))
    assert job.text.startswith("#SBATCH")


def test_the_script_that_a_cell_submits_is_known():
    cells = ("%%writefile job.sh\n#!/bin/bash\n#SBATCH --nodes=2\nsrun a", "!sbatch other.sh")
    (job,), _ = page_documents(notebook(*cells))
    assert job.submitted == "other.sh"


@pytest.mark.parametrize("cell", ["%%html\n<b>import torch</b>", "%%latex\nimport torch"])
def test_cells_of_other_languages_are_left_out(cell):
    assert page_documents(notebook(cell)) == ([], [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 1}', '{"cells": [{}]}', '{"cells": []}'])
def test_what_is_no_notebook_holds_nothing(text):
    assert page_documents(Document("a.ipynb", text, name="a.ipynb")) == ([], [])


@given(st.lists(st.text(alphabet='`~\n\t#%!SBATCHimportorch()=: "\\é', max_size=80), max_size=4))
def test_no_cell_breaks_the_reader(cells):
    for documents in page_documents(notebook(*cells)):
        for document in documents:
            document.place(Span(0, len(document.text)))
