"""Several parties on one bus: a feed publishes, two travellers want different things."""

import asyncio

from angelia import event_type
from angelia.bus import Bus


@event_type("flights.Quote")
class Quote:
    """What a seat costs today."""

    airline: str
    dest: str
    price: float


async def main() -> None:
    """Publish three quotes; print who hears of which."""
    async with Bus() as bus:
        bus.subscribe(Quote, lambda quote: print("everything:", quote.airline, quote.price))
        bus.subscribe(Quote, lambda quote: print("bargain:   ", quote.dest, quote.price), where="price < 300")
        await bus.publish(Quote(airline="UA", dest="DEN", price=420))
        await bus.publish(Quote(airline="AA", dest="LAX", price=250))
        await bus.publish(Quote(airline="UA", dest="SFO", price=310))


asyncio.run(main())
