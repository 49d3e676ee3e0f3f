"""Without asyncio: a worker in a thread, and a publisher that cannot run away from it."""

import threading

from angelia import Event
from angelia.bus import SyncBus

with SyncBus() as bus:
    jobs = bus.subscribe("exists job", size=2)  # the publisher waits when two are queued

    def work() -> None:
        """Do one job after the other, until the bus is closed."""
        for event in jobs:
            print("done:", event["job"])

    worker = threading.Thread(target=work)
    worker.start()
    for number in range(5):
        bus.publish(Event({"job": number}))
worker.join()
