"""A job script: directives, commands, what each starts and where.

| module | what |
|---|---|
| ``job`` | ``Job``, ``Launch``: a job script |
| ``questions`` | what several rules ask of a job |
| ``signals`` | signals before the time limit, traps, requeues |
| ``environment`` | variables that schedulers set |
| ``reader`` | text → ``Job`` |
| ``directives`` | ``#SBATCH``, ``#PBS``, ``#BSUB`` |
| ``request`` | ``Request``: what the directives ask for, as numbers |
| ``commands`` | ``Command``, ``Step``, ``Shell``, and ``Value``: what a word becomes |
| ``arithmetic`` | numbers in ``$((…))`` |
| ``source`` | ``Source``: a shell text with its places in the document |
| ``printing`` | what echo, printf and cat print |
| ``words`` | a shell's words → ``Value`` |
| ``scope`` | variables, and what holds at one place of a script |
| ``simple`` | assignments, redirections, simple commands |
| ``shell`` | the syntax tree, walked as a shell would |
| ``builtins`` | cd, set, source, eval, trap, read |
| ``runner`` | what each simple command does and starts |
| ``options`` | command lines → options and operands |
| ``wrappers`` | ``time``, ``env``, containers, ``bash -c`` |
| ``steps`` | srun, mpiexec, pbsdsh, ssh and others: tasks on nodes |
| ``launches`` | torchrun, accelerate, python and others: which program |
| ``tools`` | tools of shells and systems; what a job starts that nobody has read |
| ``submitted`` | jobs whose text a script has in itself |
| ``typos`` | mistakes in the text itself: misspelt directives, broken line ends |
"""
