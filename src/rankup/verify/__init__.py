"""Floor 6: does a run that is killed and resumed train the same model? Bit for bit, and if not, since when and why.

``verify`` says which runs there are and in which order, ``attempts`` starts and kills them, ``plan`` chooses where;
``crossings`` says what that crossed; ``recorded`` reads what each rank has traced, ``compare`` finds the first
difference, ``untracked`` the state that no snapshot holds, ``cause`` names what it comes from by the ``evidence``;
``values`` measures it between numbers of processes, ``worlds`` judges that, ``table`` shows it all. Only ``attempts``
and ``values`` start processes, and none of it imports torch.
"""
