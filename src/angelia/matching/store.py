"""The filters of a matcher, in parts that change as wholes.

Filters lie in *snapshots* (compiled, immutable but for removals) and, the fresh ones, in a small index
in pure Python. A thread in the background makes snapshots of fresh filters, and larger snapshots of
small ones, and puts them in place in one step; so there are few snapshots, each several times as large
as the next, and a filter is compiled a few times in its life. What is removed is marked in its snapshot,
and gone with the next one.

`View` is what a match looks at: it is replaced as a whole, never changed.

Nobody waits long for the interpreter's lock: the thread works in slices and sleeps in between. While it
makes a large snapshot, it makes small ones of filters that come meanwhile, in such a pause.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, RLock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from angelia.errors import MatcherError, UnknownFilterError
from angelia.filter import Filter
from angelia.matching.fallback import PureIndex
from angelia.matching.values import checked, csr, is_plain

if TYPE_CHECKING:
    from angelia.matching.snapshot import Snapshot
    from angelia.types import TypeRegistry

__all__ = ["FRESH", "Fresh", "Retired", "Store", "View", "snapshot_of"]

FRESH = 512  # filters in the pure index that make a snapshot worth while
GROWTH = 4  # a snapshot is merged with the fresh ones once these are so many times fewer, or less
READ_SLICE = 256  # filters that are read under the lock at once
PAUSE = 0.0001  # seconds that a build in the background gives way to others, every so often
BACKLOG = 2048  # fresh filters that do not wait for a larger snapshot to be done
RUSH, RUSH_PAUSE = 64, 0.005  # so many filters in so many seconds are waited for
NESTED = 3  # snapshots that are in the making at once, each of them smaller
SHARDS = 64  # a dictionary that grows moves all that it has at once: so it is in parts

Answer = TypeVar("Answer")
Member = tuple[Filter, Hashable | None]


class Retired(Exception):  # noqa: N818 - no error: who meets it looks at the new view
    """The filters that were asked for have been compiled meanwhile."""


class Fresh:
    """Filters that are not in a snapshot yet, safe for several threads."""

    def __init__(self, registry: TypeRegistry | None) -> None:
        self.members: dict[Hashable, tuple[Filter, Hashable | None]] = {}
        self._lock = Lock()
        self._index: PureIndex | None = PureIndex(registry)
        self._registry = registry
        self._compiled: Snapshot | None = None
        self._asked = 0  # events since the last change

    def __len__(self) -> int:
        return len(self.members)

    def add(self, id_: Hashable, filter_: Filter, link: Hashable | None) -> None:
        """Add a filter."""
        with self._lock:
            self.members[id_] = filter_, link
            self._there().add(id_, filter_, link)
            self._changed()

    def remove(self, id_: Hashable) -> bool:
        """Remove a filter; whether it was here."""
        with self._lock:
            if self.members.pop(id_, None) is None:
                return False
            self._there().remove(id_)
            self._changed()
            return True

    def _changed(self) -> None:
        self._compiled = None
        self._asked = 0

    def ask(
        self, question: Callable[[PureIndex, Mapping[str, Any]], Answer], values: Mapping[str, Any]
    ) -> Answer:
        """What the index says of some flat values."""
        with self._lock:
            return question(self._there(), values)

    def compiled(self) -> Snapshot:
        """The same filters, compiled: a batch is worth that."""
        with self._lock:
            self._there()
            if self._compiled is None:
                self._compiled = snapshot_of(self.members, self._registry)
            return self._compiled

    def match_events(self, events: Sequence[Mapping[str, Any]], by_link: bool) -> tuple[Any, Any]:
        """What some flat values match: compiled as soon as there were about as many events as filters."""
        with self._lock:
            index = self._there()
            self._asked += len(events)
            if self._compiled is None and self._asked < len(self.members):
                match = index.match_links if by_link else index.match
                return csr(match(each if is_plain(each) else checked(each)) for each in events)
        return self.compiled().match_events(events, by_link=by_link)

    def _there(self) -> PureIndex:
        if self._index is None:
            raise Retired
        return self._index

    def retire(self, pause: Callable[[], None]) -> None:
        """Take the index apart, in slices: to let go of it at once would take a while."""
        with self._lock:
            index, self._index = self._there(), None
        index.dissolve(pause)


def snapshot_of(members: Mapping[Hashable, Member], registry: TypeRegistry | None) -> Snapshot:
    """A snapshot of some filters, made at once."""
    from angelia.matching.snapshot import Snapshot

    filters, links = zip(*members.values(), strict=True) if members else ((), ())
    has_links = any(link is not None for link in links)
    return Snapshot(list(members), filters, links if has_links else None, registry)


@dataclass(frozen=True, slots=True)
class View:
    """What a match looks at: snapshots, the largest first, and fresh filters."""

    snapshots: tuple[Snapshot, ...]
    fresh: tuple[Fresh, ...]
    only: Snapshot | None = None  # the snapshot that all filters are in, if there is one

    @staticmethod
    def of(snapshots: Iterable[Snapshot], fresh: tuple[Fresh, ...]) -> View:
        """The view of some parts as they are; a fresh filter makes another one."""
        ordered = tuple(sorted(snapshots, key=len, reverse=True))
        is_one = len(ordered) == 1 and not any(each.members for each in fresh)
        return View(ordered, fresh, ordered[0] if is_one else None)

    @property
    def is_settled(self) -> bool:
        """Whether no filters are fresh."""
        for fresh in self.fresh:  # noqa: SIM110 - asked for every event, and faster than a generator
            if fresh.members:
                return False
        return True


class Members:
    """All filters with their links, by id."""

    __slots__ = ("_links", "_shards")

    def __init__(self) -> None:
        self._shards: list[dict[Hashable, Filter]] = [{} for _ in range(SHARDS)]
        self._links: list[dict[Hashable, Hashable]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def __iter__(self) -> Iterator[Hashable]:
        for shard in self._shards:
            yield from list(shard)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._shards[hash(id_) % SHARDS]

    def get(self, id_: Hashable) -> Member | None:
        """A filter and its link."""
        at = hash(id_) % SHARDS
        filter_ = self._shards[at].get(id_)
        return None if filter_ is None else (filter_, self._links[at].get(id_))

    def put(self, id_: Hashable, filter_: Filter, link: Hashable | None) -> None:
        """Add a filter."""
        at = hash(id_) % SHARDS
        self._shards[at][id_] = filter_
        if link is not None:
            self._links[at][id_] = link

    def put_all(self, ids: Sequence[Hashable], filters: Sequence[Filter], link: Hashable | None) -> None:
        """Add several filters."""
        shards = self._shards
        for id_, filter_ in zip(ids, filters, strict=True):
            shards[hash(id_) % SHARDS][id_] = filter_
        if link is not None:
            for id_ in ids:
                self._links[hash(id_) % SHARDS][id_] = link

    def pop(self, id_: Hashable) -> bool:
        """Remove a filter; whether it was there."""
        at = hash(id_) % SHARDS
        self._links[at].pop(id_, None)
        return self._shards[at].pop(id_, None) is not None


class Store:
    """Filters that come and go, and the parts that they are found in."""

    def __init__(self, registry: TypeRegistry | None, is_compiled: Callable[[], bool]) -> None:
        """`is_compiled` tells whether snapshots are to be made."""
        self._registry, self._is_compiled = registry, is_compiled
        self.members = Members()
        self._lock = Lock()
        self._fresh = Fresh(registry)
        self.view = View((), (self._fresh,))
        self.context: tuple[str, ...] = ()  # which parts of the context filters ask about
        self.odd_ids = 0  # ids that are no integers of 64 bits
        self.worker: Thread | None = None
        self._building = RLock()  # held by the one who builds
        # For each snapshot in the making: what it is made of, and what was removed since it was read.
        self._builds: list[tuple[Sequence[Snapshot | Fresh], set[Hashable]]] = []

    # ---------------------------------------------------------------- changes

    def add(self, id_: Hashable, filter_: Filter, link: Hashable | None) -> None:
        """Add a filter."""
        with self._lock:
            if id_ in self.members:
                raise _used(id_)
            if not isinstance(filter_, Filter):
                raise _no_filter(filter_)
            self.odd_ids += _is_odd(id_)
            self._note_context(filter_)
            self.members.put(id_, filter_, link)
            if self.view.only is not None:
                self.view = View(self.view.snapshots, self.view.fresh)
            self._fresh.add(id_, filter_, link)
        self.tidy()
        if len(self._fresh) > 2 * BACKLOG and self.worker is not None:
            _pause()  # who adds without end lets the worker catch up

    def add_all(self, ids: Sequence[Hashable], filters: Sequence[Filter], link: Hashable | None) -> None:
        """Add many filters, in a snapshot of their own."""
        from angelia.matching.snapshot import Snapshot

        self.check_new(ids, filters)
        snapshot = Snapshot(ids, filters, None if link is None else [link] * len(ids), self._registry)
        with self._lock:
            self.check_new(ids, ())  # somebody may have added one meanwhile
            self.members.put_all(ids, filters, link)
            self.odd_ids += 0 if snapshot.all_ints else sum(map(_is_odd, ids))
            asked = (slot.name for slot in snapshot.tables.slots if slot.name[0] == "@")
            self.context = tuple(dict.fromkeys((*self.context, *asked)))
            self.view = View.of((*self.view.snapshots, snapshot), self.view.fresh)
        self.tidy()

    def check_new(self, ids: Sequence[Hashable], filters: Sequence[object]) -> None:
        """Refuse ids that are in use, and what is no filter."""
        for cls in set(map(type, filters)):
            if not issubclass(cls, Filter):
                raise _no_filter(next(each for each in filters if type(each) is cls))
        if len(self.members):
            for id_ in ids:
                if id_ in self.members:
                    raise _used(id_)

    def remove(self, id_: Hashable) -> None:
        """Remove a filter: it is never reported again."""
        with self._lock:
            if not self.members.pop(id_):
                raise UnknownFilterError(f"there is no filter with the id {id_!r}")
            self.odd_ids -= _is_odd(id_)
            for _, removed in self._builds:
                removed.add(id_)
            view = self.view
            if not any(fresh.remove(id_) for fresh in view.fresh):
                for snapshot in view.snapshots:
                    if snapshot.remove(id_):
                        break
        if _is_sparse(view.snapshots):
            self.tidy()

    def _note_context(self, filter_: Filter) -> None:
        for conjunction in filter_.conjunctions:
            for name in conjunction.conditions:
                if name[0] == "@" and name not in self.context:
                    self.context = (*self.context, name)
            if (conjunction.types or conjunction.not_types) and "@type" not in self.context:
                self.context = (*self.context, "@type")

    def all_members(self) -> dict[Hashable, Member]:
        """The filters of this moment."""
        with self._lock:
            return {id_: member for id_ in self.members if (member := self.members.get(id_))}

    @property
    def delta(self) -> int:
        """How many filters are in no snapshot yet."""
        return sum(map(len, self.view.fresh))

    # ---------------------------------------------------------------- in the background

    def tidy(self) -> None:
        """Have the worker started if there is work for it."""
        view = self.view
        if len(self._fresh) < FRESH and not _is_sparse(view.snapshots):
            return
        if self.worker is not None or not self._is_compiled():
            return
        with self._lock:
            if self.worker is None:
                self.worker = Thread(target=self._work, name="angelia-index", daemon=True)
                self.worker.start()

    def _work(self) -> None:
        try:
            self._let_come()
            while self._rebuild():
                self._let_come()
        finally:
            self.worker = None

    def _let_come(self) -> None:
        """Wait while filters come in a rush: one snapshot of many costs less than several of few."""
        seen = -RUSH
        while seen + RUSH <= len(self._fresh) < BACKLOG:
            seen = len(self._fresh)
            time.sleep(RUSH_PAUSE)

    def compact(self) -> None:
        """Put all filters into one snapshot; the caller waits."""
        self._rebuild(everything=True)

    def _rebuild(self, everything: bool = False) -> bool:
        """Make one snapshot of the fresh filters and the snapshots that are due; whether there was work."""
        from angelia.matching.ranking import let_go
        from angelia.matching.snapshot import Snapshot

        with self._building:
            frozen, merged = self._take(everything)
            if frozen is None and not merged:
                return False
            sources: list[Snapshot | Fresh] = [*merged, *([] if frozen is None else [frozen])]
            with self._making(sources) as removed:
                ids, filters, links = self._read(sources)
                built = Snapshot(ids, filters, links, self._registry, self._give_way)
                with self._lock:
                    for id_ in removed:
                        built.remove(id_)
                    kept = [each for each in self.view.snapshots if each not in merged]
                    fresh = tuple(each for each in self.view.fresh if each is not frozen)
                    self.view = View.of((*kept, built), fresh)
            for read in (ids, filters):
                let_go(read, self._give_way)
            if frozen is not None:
                frozen.retire(self._give_way)
            del sources
            while merged:
                _dissolve(merged, _pause)
        return True

    def _take(self, everything: bool) -> tuple[Fresh | None, list[Snapshot]]:
        """What the next snapshot is made of; fresh filters go elsewhere from now on."""
        with self._lock:
            view, taken = self.view, [each for sources, _ in self._builds for each in sources]
            free = [snapshot for snapshot in view.snapshots if snapshot not in taken]
            frozen = self._fresh if everything or len(self._fresh) >= FRESH else None
            merged = free if everything else _due(free, len(frozen or ()))
            if frozen is not None and not frozen.members:
                frozen = None
            if frozen is not None:
                self._fresh = Fresh(self._registry)
                self.view = View.of(view.snapshots, (*view.fresh, self._fresh))
        return frozen, merged

    @contextmanager
    def _making(self, sources: Sequence[Snapshot | Fresh]) -> Iterator[set[Hashable]]:
        """Collect what is removed while a snapshot is made."""
        build: tuple[Sequence[Snapshot | Fresh], set[Hashable]] = (sources, set())
        with self._lock:
            self._builds.append(build)
        try:
            yield build[1]
        finally:
            with self._lock:
                self._builds.remove(build)

    def _give_way(self) -> None:
        """Let others work, and do not let fresh filters pile up."""
        _pause()
        if len(self._fresh) >= BACKLOG and len(self._builds) < NESTED:
            self._rebuild()

    def _read(self, sources: Iterable[Snapshot | Fresh]) -> tuple[Any, Any, list[Hashable | None] | None]:
        """The filters of snapshots and fresh ones that are still there, in slices, with their links.

        They go to arrays, which the garbage collector does not look at.
        """
        import numpy as np

        count, room = 0, sum(len(source) for source in sources)
        ids, filters = np.empty(room, object), np.empty(room, object)
        links: dict[int, Hashable] = {}
        for source in sources:
            # An id may come back with another filter while this reads: what is in `source` is the old one.
            known: Any = list(source.members) if isinstance(source, Fresh) else source.ids
            for start in range(0, len(known), READ_SLICE):
                end = start + READ_SLICE
                with self._lock:
                    if isinstance(source, Fresh):
                        there = [id_ for id_ in known[start:end] if id_ in source.members]
                    else:
                        there = known[start:end][source.alive[start : min(end, len(known))] > 0].tolist()
                    for id_ in there:
                        if (member := self.members.get(id_)) is not None:
                            ids[count], filters[count] = id_, member[0]
                            if member[1] is not None:
                                links[count] = member[1]
                            count += 1
                self._give_way()
        linked = [links.get(i) for i in range(count)] if links else None
        return ids[:count], filters[:count], linked


def _used(id_: Hashable) -> MatcherError:
    return MatcherError(f"there is a filter with the id {id_!r} already; remove it first")


def _no_filter(given: object) -> MatcherError:
    return MatcherError(f"a matcher takes Filters, not {type(given).__name__}; see Filter.parse")


def _is_odd(id_: Hashable) -> bool:
    return not (type(id_) is int and -(2**63) <= id_ < 2**63)


def _pause() -> None:
    # Longer than zero: else this thread has the GIL again before another one wakes up.
    time.sleep(PAUSE)


def _dissolve(snapshots: list[Snapshot], pause: Callable[[], None]) -> None:
    """Let go of a snapshot in slices, as soon as nobody uses it: at once it would take a while."""
    snapshot = snapshots.pop()
    for _ in range(1000):
        if sys.getrefcount(snapshot) <= 2:
            snapshot.dissolve(pause)
            return
        pause()


def _is_sparse(snapshots: Iterable[Snapshot]) -> bool:
    """Whether a quarter or more of some snapshot has been removed."""
    return any(4 * snapshot.tombstones > len(snapshot.ids) for snapshot in snapshots)


def _due(snapshots: Iterable[Snapshot], fresh: int) -> list[Snapshot]:
    """The snapshots that are to be merged: the small ones next to `fresh` filters, and sparse ones."""
    due, size = [], fresh
    for snapshot in sorted(snapshots, key=len):
        if _is_sparse((snapshot,)) or (fresh and len(snapshot) <= GROWTH * size):
            due.append(snapshot)
            size += len(snapshot)
    return due
