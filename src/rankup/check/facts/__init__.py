"""Facts: what job scripts and programs say. Rules judge them and read no text themselves.

| module | what |
|---|---|
| ``start`` | ``Start``: how a script starts a program |
| ``program_names`` | names that launchers, frameworks and torch give |
| ``program_module`` | ``Module``, ``Scope``, ``Call``: one Python file, walked once |
| ``program_imports`` | ``Project``: a program with the local modules that it imports |
| ``program_calls`` | ``CallGraph``: who calls whom |
| ``program_value`` | ``Value``: what a value can be |
| ``program_reaching`` | which assignments reach a place |
| ``program_conditions`` | conditions on the rank |
| ``program_results`` | what calls of Python and torch return |
| ``program_values`` | ``Values``: where a value comes from |
| ``program_guards`` | ``Guards``: which statements run on some ranks only |
| ``program_data`` | loaders, samplers, loops |
| ``program_sharding`` | data sets: parts for ranks, random numbers, seeds |
| ``program_snapshots`` | what is saved and loaded |
| ``program_frameworks`` | Lightning, Accelerate, … |
| ``program`` | ``Program``: all of it |
| ``program_reader`` | text → ``Program`` |
| ``job`` | ``Job``, ``Launch``: a job script |
| ``job_reader`` | text → ``Job`` |
"""
