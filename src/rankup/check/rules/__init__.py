"""The rules, a file each, which holds its documentation, its examples and how it looks at facts.

| package | what |
|---|---|
| ``edits`` | edits that several rules make |
| ``queries`` | what several rules ask of a program |
| ``job`` | rules of job scripts, together with the programs that they start |
| ``program`` | rules of programs |
"""
