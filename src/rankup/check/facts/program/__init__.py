"""A Python program: names, values, conditions on the rank, data, saves.

| module | what |
|---|---|
| ``names`` | names that launchers, frameworks and torch give |
| ``module`` | ``Module``, ``Scope``, ``Call``: one Python file |
| ``walk`` | text → ``Module`` |
| ``imports`` | ``Project``: a program with the local modules that it imports |
| ``calls`` | ``CallGraph``: who calls whom |
| ``value`` | ``Value``: what a value can be |
| ``reaching`` | which assignments reach a place |
| ``conditions`` | conditions on the rank |
| ``results`` | what calls of Python and torch return |
| ``operators`` | what arithmetic, comparisons and f-strings make of ranks |
| ``environ`` | variables of the environment: what launchers set, what a program sets |
| ``values`` | ``Values``: where a value comes from |
| ``guards`` | ``Guards``: which statements run on some ranks only |
| ``code`` | ``ProgramCode``: all of these over all modules |
| ``required`` | variables without which a program cannot run |
| ``data`` | loaders, samplers, loops |
| ``sharding`` | data sets: parts for ranks, random numbers, seeds |
| ``snapshots`` | what is saved and loaded |
| ``frameworks`` | Lightning, Accelerate, …: what each does in place of the program |
| ``sounds`` | names that decide by their sound |
| ``flow`` | loops, branches and blocks around statements |
| ``program`` | ``Program``: all of it |
| ``loops`` | loops inside other loops |
| ``reader`` | text → ``Program`` |
"""
