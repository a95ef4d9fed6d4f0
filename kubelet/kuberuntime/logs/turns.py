"""Let the readers of logs take turns when they parse what they have read.

This file has no Go counterpart. Go runs as many goroutines at once as there are processors, and preempts each of them
after a while. Python runs one thread at a time. If hundreds of clients have megabytes of log parsed, any other thread,
even that of the sync loop, would wait several seconds for all of them.
"""

from __future__ import annotations

from pkg.golang.turn import Turns

# A reader holds a turn while it parses one block of a log, and never while it reads or sends, which may take any time.
# A reader of a few lines, such as a termination message, does not wait for the readers of megabytes.
TURNS = Turns(1, by_use=True)
