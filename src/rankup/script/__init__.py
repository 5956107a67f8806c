"""A job's script: a JobSpec and a Site become plain bash.

In reading order: ``render`` (the order of the script), ``settings`` (what stands at its top), ``environment`` (folder,
modules, variables), ``containers`` (what takes a command into an image), ``start`` (what starts the ranks), ``stage``
(what runs on each node before and after them), ``parts/*.sh`` (the functions that are the same in every job); apart
from them ``env_build`` (a script that builds a Python environment).
"""
