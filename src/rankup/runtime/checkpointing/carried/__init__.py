"""Variables of the script that a loop carries from pass to pass, and that a resume loses.

- ``watch``: looks at them as a loop goes on, and warns
- ``frames``: those of a frame, with their values
- ``names``: which they are, by the script's source
- ``flow``: what a pass reads before it has set it
- ``forward_state``: tensors that a module carries from one forward pass to the next
- ``clocks``: times, which are not looked at
- ``files``: files that the loop writes
- ``syntax``: parts of the source
- ``script_objects``: objects of the script, read without running its code
- ``iterators``: how far one is
- ``values``: whether one has changed
- ``messages``: the sentences
"""
