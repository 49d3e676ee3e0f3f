"""A process that appends, for tests that kill it: `appender.py LAKE FIRST FSYNC`.

It prints the last number of each batch once the append has returned.
"""

import sys
from itertools import count

from tests.store.helpers import events, registry

from angelia.store import LakeWriter, Limits

lake, first, fsync = sys.argv[1], int(sys.argv[2]), sys.argv[3]
limits = Limits(rows=400, size=1 << 20, age=0.2)
with LakeWriter(lake, "b1", registry(), fsync=fsync, interval=0.05, limits=limits) as writer:  # type: ignore[arg-type]
    print("ready", flush=True)
    for start in count(first, 20):
        writer.append(events(start, start + 20))
        print(start + 19, flush=True)
