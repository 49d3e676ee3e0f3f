"""What the tests of the bus share."""

import asyncio
import functools

from angelia import Event, event_type


def asynchronous(test):
    """Run an asynchronous test on a loop of its own; it may leave no task behind."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        async def main():
            async with asyncio.timeout(20):
                await test(*args, **kwargs)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    return run


def quote(price, airline="UA", **context):
    return Event({"airline": airline, "price": price}, type="flights.Quote", **context)


def prices(events):
    return [event["price"] for event in events]


async def turns(count=5):
    """Let whatever is due run."""
    for _ in range(count):
        await asyncio.sleep(0)


@event_type("test.Happening")
class Happening:
    where: str


@event_type("test.Sale")
class Sale(Happening):
    price: float


@event_type("test.Auction")
class Auction(Sale):
    bidders: int
