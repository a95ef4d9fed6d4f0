"""Lets one reader of a log after the other take apart what it has read.

This file has no Go counterpart. Go runs as many goroutines at once as there are processors, and takes each
off its processor after a while. Python runs one thread at a time: where hundreds of clients have megabytes taken apart,
each other thread that is ready, that of the sync loop too, has its turn after all of theirs, which takes seconds.
"""

from __future__ import annotations

from pkg.golang.turn import Turns

# Held while one block of a log is taken apart, and never while something is read or sent: that may take any time. Who
# reads a few lines, as for what a container said at its end, does not wait for all who read megabytes.
TURNS = Turns(1, by_use=True)
