"""Facts: what job scripts and programs say. Rules judge them and read no text themselves.

| module | what |
|---|---|
| ``start`` | ``Start``: how a script starts a program |
| ``program`` | ``Program``: a Python program |
| ``job`` | ``Job``, ``Launch``: a job script |
"""
