"""Process groups, and what ranks tell each other.

- ``groups``: how the process group is formed, and enough file descriptors for it
- ``rendezvous``: how ranks meet without a launcher's agent
- ``control``: the small numbers that ranks exchange, with a name for each exchange
- ``waiting``: which rank waits for which, and whether a loop has stopped making steps
- ``differing``: the values of the script that differ between ranks at different places
- ``reduce``: sums and means over ranks
- ``gather``: all ranks' rows, with gradients
- ``sections``: ``rankup.first``: downloads that one process does first
- ``replicas``, ``buffers``: replicas stay one model
- ``shutdown``: the end of a rank, after success and after an exception
"""
