"""A bounded queue of one subscription, and what happens when it is full.

Nothing waits in here. Who must wait is given a `Ticket`, or calls again after being woken; how to wait
is the affair of the shells. Calls must not overlap: the asynchronous shell has one thread, the
synchronous one a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar, get_args
from weakref import ref

from angelia.errors import AngeliaError, ClosedError, DisconnectedError, RequestError

__all__ = ["DEFAULT_SIZE", "Mailbox", "Policy", "Ticket"]

T = TypeVar("T")

Policy = Literal["block", "drop_oldest", "drop_newest", "disconnect"]

DEFAULT_SIZE = 1024
_NONE: deque[Any] = deque(maxlen=0)


class Ticket(Generic[T]):
    """An item before a full queue: `admitted` once the publisher need not wait for it any more."""

    __slots__ = ("admitted", "item", "mailbox", "wake")

    def __init__(self, mailbox: Mailbox[T], item: T, admitted: bool) -> None:
        self.mailbox = mailbox
        self.item = item
        self.admitted = admitted
        self.wake: Callable[[], None] = _nobody

    def admit(self) -> None:
        """Let the publisher go."""
        self.admitted = True
        self.wake()

    def withdraw(self) -> None:
        """Give up waiting; the item counts as dropped."""
        if not self.admitted:
            self.admitted = True
            self.mailbox.withdraw(self)


class Mailbox(Generic[T]):
    """A queue with `size` places and a policy for when they are taken.

    `arrived` is called when there is something to read, be it an item or the end.
    """

    __slots__ = (
        "_arrived", "_bytes", "_end", "_items", "_most_bytes", "_waiting", "dropped", "is_behind", "policy",
        "reader", "received", "size",
    )  # fmt: skip

    def __init__(self, size: int, policy: Policy, arrived: Callable[[], None]) -> None:
        if not isinstance(size, int) or size < 1:
            raise RequestError(f"a queue has a size of at least 1, not {size!r}")
        if policy not in get_args(Policy):
            raise RequestError(f"there is no policy {policy!r}; there are {', '.join(get_args(Policy))}")
        self.size = size
        self.policy = policy
        self.received = 0
        self.dropped = 0
        self.is_behind = (
            False  # what is put is not taken: the consumer reads it elsewhere, and will come to it
        )
        self.reader: ref[Any] | None = None  # the task or thread that read last
        self._items: deque[T] = _NONE  # an empty one of its own takes its room, and there may be many
        self._waiting: deque[Ticket[T]] = _NONE
        self._end: AngeliaError | None = None
        self._arrived = arrived
        self._most_bytes = 0  # no limit
        self._bytes = 0  # of the events in here, if there is one

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_open(self) -> bool:
        """Whether items may still come."""
        return self._end is None

    @property
    def is_readable(self) -> bool:
        """Whether `get` has something to say: an item, or that there will be none."""
        return bool(self._items) or self._end is not None

    def limit_bytes(self, most: int) -> None:
        """Drop the oldest events also where all take more bytes than this; to be said before any comes."""
        self._most_bytes = most

    # ------------------------------------------------ publishers

    def put(self, item: T) -> Ticket[T] | None:
        """Add an item. A ticket tells that the queue is full, and whether to wait."""
        if self._end is not None or self.is_behind:
            return None
        self.received += 1
        if self._most_bytes:
            self._make_room(item)
        items = self._items
        if len(items) < self.size:
            if items is _NONE:
                items = self._items = deque()
            items.append(item)
            self._arrived()
            return Ticket(self, item, admitted=True) if len(items) == self.size else None
        return _WHEN_FULL[self.policy](self, item)

    def _make_room(self, item: T) -> None:
        self._bytes += _size(item)
        while self._items and self._bytes > self._most_bytes:
            self._bytes -= _size(self._items.popleft())
            self.dropped += 1

    @property
    def is_idle(self) -> bool:
        """Whether an item that came now would be the next to be read."""
        return not self._items and self._end is None and not self.is_behind

    def feed(self, items: Iterable[T]) -> None:
        """Add what the consumer read elsewhere, however much it is."""
        for item in items:
            self.received += 1
            self._add(item)

    def _add(self, item: T) -> None:
        if self._items is _NONE:
            self._items = deque()
        self._items.append(item)
        self._arrived()

    def _block(self, item: T) -> Ticket[T]:
        ticket = Ticket(self, item, admitted=False)
        if self._waiting is _NONE:
            self._waiting = deque()
        self._waiting.append(ticket)
        return ticket

    def _drop_oldest(self, item: T) -> Ticket[T]:
        self._items.append(item)
        oldest = self._items.popleft()
        if self._most_bytes:
            self._bytes -= _size(oldest)
        return self._dropped(oldest)

    def _dropped(self, item: T) -> Ticket[T]:
        self.dropped += 1
        return Ticket(self, item, admitted=True)

    def _disconnect(self, item: T) -> Ticket[T]:
        self.dropped += len(self._items) + 1
        self._items.clear()
        self._finish(
            DisconnectedError(
                f"the subscription was ended: its queue of {self.size} was full, and its policy is "
                f"disconnect; {self.dropped} events were dropped"
            )
        )
        return Ticket(self, item, admitted=True)

    def withdraw(self, ticket: Ticket[T]) -> None:
        """A publisher no longer waits."""
        self._waiting.remove(ticket)
        self.dropped += 1

    # ------------------------------------------------ the consumer

    def take(self) -> T | None:
        """The oldest item, if there is one."""
        if not self._items:
            return None
        item = self._items.popleft()
        if self._most_bytes:
            self._bytes -= _size(item)
        if self._waiting:
            self._let_in()
        return item

    def get(self) -> T:
        """The oldest item; the error that says why there is none, after the end."""
        item = self.take()
        if item is not None:
            return item
        end = self._end or LookupError("nothing has arrived; ask is_readable first")
        raise type(end)(*end.args)  # anew, for each reader its own

    def _let_in(self) -> None:
        ticket = self._waiting.popleft()
        self._add(ticket.item)
        ticket.admit()

    # ------------------------------------------------ the end

    def finish(self) -> None:
        """No more items; what is here, or waits, can still be read."""
        while self._waiting:
            self._let_in()
        self._finish(ClosedError("the subscription is closed"))

    def discard(self) -> None:
        """The consumer is gone, and wants nothing of what is here."""
        self._items.clear()
        while self._waiting:
            self._waiting.popleft().admit()
        self._finish(ClosedError("the subscription is closed"))

    def fail(self, error: AngeliaError) -> None:
        """No more items, for a reason that the consumer is told after what is here."""
        while self._waiting:
            self._let_in()
        self._finish(error)

    def _finish(self, end: AngeliaError) -> None:
        if self._end is None:
            self._end = end
            self._arrived()


_WHEN_FULL: dict[str, Callable[[Mailbox[Any], Any], Ticket[Any]]] = {
    "block": Mailbox._block,
    "drop_oldest": Mailbox._drop_oldest,
    "drop_newest": Mailbox._dropped,
    "disconnect": Mailbox._disconnect,
}


def _size(item: Any) -> int:
    """The bytes of an event, or of several."""
    return sum(map(_size, item)) if isinstance(item, tuple) else int(item.encoded_size())


def _nobody() -> None:
    """Wakes nobody: the publisher has not begun to wait."""
