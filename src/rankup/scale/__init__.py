"""Floor 6: what more processes bring, measured so that it would convince somebody else.

``grid`` says which runs and in which order, ``study`` runs them, ``measured`` reads what each wrote of itself,
``refuse`` says whether they may be compared, ``compare`` compares them, ``table`` and ``report`` show and keep it.
All but ``study`` and ``report`` take data and return data.
"""
