"""A line of five brokers in one process: events go only as far as somebody wants them."""

import asyncio

from angelia import Event
from angelia.bus import Bus


async def main() -> None:
    """Publish at one end of the line, subscribe at the other."""
    async with Bus(5, topology="line") as bus:
        sensor = bus.client("sensor", broker="b1")
        alarms = bus.client("watchman", broker="b5").subscribe("temperature > 30")
        before = bus.stats().messages
        for temperature in (20, 25, 35, 22, 40):
            await sensor.publish(Event({"temperature": temperature}))
        print("alarms:", [event["temperature"] for event in alarms.drain()])
        print("messages between brokers:", bus.stats().messages - before, "of", 5 * 4, "with flooding")


asyncio.run(main())
