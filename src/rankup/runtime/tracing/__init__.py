"""What ``rankup verify`` reads and does in a training.

- ``trace``: what each rank records after every step
- ``digest``, ``fingerprint``: hashes of a state: exact ones, and cheap ones
- ``script_variables``: the variables of the user's script
- ``fault_injection``: an end put to a run at a chosen point
"""
