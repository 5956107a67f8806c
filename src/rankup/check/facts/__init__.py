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
| ``job_questions`` | what several rules ask of a job |
| ``job_signals`` | signals before the time limit, traps, requeues |
| ``job_environment`` | variables that schedulers set |
| ``job_reader`` | text → ``Job`` |
| ``job_directives`` | ``#SBATCH``, ``#PBS``, ``#BSUB`` |
| ``job_request`` | ``Request``: what the directives ask for, as numbers |
| ``job_commands`` | ``Command``, ``Step``, ``Shell``, and ``Value``: what a word becomes |
| ``job_arithmetic`` | numbers in ``$((…))`` |
| ``job_source`` | ``Source``: a shell text with its places in the document |
| ``job_words`` | a shell's words → ``Value`` |
| ``job_scope`` | variables, and what holds at one place of a script |
| ``job_simple`` | assignments, redirections, simple commands |
| ``job_shell`` | the syntax tree, walked as a shell would |
| ``job_builtins`` | cd, set, source, eval, trap, read |
| ``job_runner`` | what each simple command does and starts |
| ``job_options`` | command lines → options and operands |
| ``job_wrappers`` | ``time``, ``env``, containers, ``bash -c`` |
| ``job_steps`` | srun, mpiexec, pbsdsh, ssh and others: tasks on nodes |
| ``job_launches`` | torchrun, accelerate, python and others: which program |
| ``job_typos`` | mistakes in the text itself: misspelt directives, broken line ends |
"""
