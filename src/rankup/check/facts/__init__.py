"""Facts: what job scripts and programs say. Rules judge them and read no text themselves.

| module | what |
|---|---|
| ``job`` | ``Job``, ``Launch``: a job script |
| ``job_reader`` | text → ``Job`` |
| ``program`` | ``Program``: a Python program |
| ``program_reader`` | text → ``Program`` |
"""
