"""Tutorials and documentation: the code in a page, as the files that a reader makes of it.

| module | what |
|---|---|
| ``notebook`` | Jupyter notebooks → Markdown |
| ``blocks`` | Markdown, reStructuredText and HTML → blocks of code |
| ``names`` | which names a program uses and never defines |
| ``joining`` | blocks → job scripts and programs |
"""
