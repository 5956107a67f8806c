"""What the script holds, what changes of it, and what no snapshot has.

- ``marks``: what tells whether a value has changed, in this process and in the next one
- ``walk``: the values that the script's frames and objects reach
- ``watch``: notes what changes and was not declared, and says what a resume would lose
- ``sums``: what the script begins anew in each epoch
- ``cures``: what is said of all that: names of values, and the call that cures each
"""
