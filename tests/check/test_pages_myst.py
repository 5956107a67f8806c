"""Pages in MyST: a directive's options are not code, and blocks inside tabs and notes are found where they stand."""

from __future__ import annotations

from rankup.check.pages.blocks import blocks_of

PAGE = """Text.

```{code-block} python
:linenos:

import torch
```

`````{tabs}
````{group-tab} Module
Save as `job.sh`:

```bash
echo one
```
````
`````

```{note}
No code.
```
"""


def test_options_of_a_directive_are_left_out_and_lines_stay_true():
    python, bash = blocks_of(PAGE, "page.md")
    assert (python.text, python.first) == ("import torch", PAGE.split("\n").index("import torch") + 1)
    assert (bash.text, bash.first) == ("echo one", PAGE.split("\n").index("echo one") + 1)
    assert "job.sh" in bash.before
