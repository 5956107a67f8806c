"""Mistakes in anybody's job scripts and training programs, found before the queue, without torch.

| module | what |
|---|---|
| ``document`` | ``Document``, ``Span``: a text and places in it |
| ``facts`` | what a job script or a program says |
| ``rule`` | ``Rule``, ``Match``, ``Edit`` |
| ``rules`` | the rules, a file each |
| ``registry`` | all rules |
| ``inputs`` | paths → documents; what kind of file each is |
| ``pages`` | tutorials: blocks of code → documents |
| ``check`` | documents → ``Diagnostic``s |
| ``fixes`` | edits → repaired texts |
| ``suppression`` | ``# rankup: allow RK115 (why)`` |
| ``selection`` | which rules are asked; rankup.toml |
| ``paths`` | files and folders → ``Checked`` |

Facts are gathered once for each file; rules are pure functions of facts and never read text themselves. A rule fires
only on evidence: what is unknown (a variable without a value, a module that is not here, a page's fragment) is silent.
"""
