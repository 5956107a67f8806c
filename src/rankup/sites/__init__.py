"""Clusters: what one is like (``Site``), and how its profile is found.

| module | what |
|---|---|
| ``site`` | ``Site``: the fields of a profile |
| ``lookup`` | where profiles lie, how one extends another, and which one a job uses |
| ``bad_nodes`` | nodes that have failed: the file of a team |
| ``discovery`` | a new profile from what a cluster says of itself |
| ``comparison`` | a profile beside what a cluster says of itself |

The built-in profiles are the TOML files in ``profiles/``.
"""
