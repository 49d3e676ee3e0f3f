"""The matcher: filters that come and go, matched without a pause.

Filters lie in *snapshots* (compiled, immutable but for removals) and, the fresh ones, in a small index
in pure Python. A thread in the background makes snapshots of fresh filters, and larger snapshots of
small ones, and puts them in place in one step; so there are few snapshots, each several times as large
as the next, and a filter is compiled a few times in its life. What is removed is marked in its snapshot,
and gone with the next one.

`_View` is what a match looks at: it is replaced as a whole, never changed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from angelia.errors import MatcherError, UnknownFilterError
from angelia.event import Event
from angelia.filter import Explanation, Filter
from angelia.matching.fallback import PureIndex
from angelia.matching.ready import readiness
from angelia.matching.values import ODD, checked, checked_all, csr, event_of, is_plain, rows_of, values_of

if TYPE_CHECKING:
    from angelia.matching.snapshot import Snapshot
    from angelia.types import TypeRegistry

__all__ = ["Matcher", "Stats"]

FRESH = 512  # filters in the pure index that make a snapshot worth while
GROWTH = 4  # a snapshot is merged with the fresh ones once these are so many times fewer, or less
WORTH_EVENTS = 64  # filters from which on micro-batches are worth the compiled engine
FEW_EVENTS = 8  # up to which a micro-batch is matched one by one
READ_SLICE = 256  # filters that are read under the lock at once
PAUSE = 0.0001  # seconds that a build in the background gives way to others, every so often

Engine = Literal["auto", "pure", "compiled"]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Stats:
    """What a matcher holds. `bytes` is the memory of the compiled tables."""

    filters: int
    predicates: int
    bytes: int
    snapshots: int
    delta: int
    tombstones: int
    build_seconds: float
    engine: str
    rebuilding: bool


class _Retired(Exception):  # noqa: N818 - no error: who meets it looks at the new view
    """The filters that were asked for have been compiled meanwhile."""


class _Fresh:
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

    def ask(self, question: Callable[[PureIndex], Answer]) -> Answer:
        """What the index says."""
        with self._lock:
            return question(self._there())

    def compiled(self) -> Snapshot:
        """The same filters, compiled: a batch is worth that."""
        with self._lock:
            self._there()
            if self._compiled is None:
                self._compiled = _snapshot(self.members, self._registry)
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
            raise _Retired
        return self._index

    def retire(self, pause: Callable[[], None]) -> None:
        """Take the index apart, in slices: to let go of it at once would take a while."""
        with self._lock:
            index, self._index = self._there(), None
        index.dissolve(pause)


def _snapshot(
    members: Mapping[Hashable, tuple[Filter, Hashable | None]], registry: TypeRegistry | None
) -> Snapshot:
    from angelia.matching.snapshot import Snapshot

    filters, links = zip(*members.values(), strict=True) if members else ((), ())
    has_links = any(link is not None for link in links)
    return Snapshot(list(members), filters, links if has_links else None, registry)


@dataclass(frozen=True, slots=True)
class _View:
    """What a match looks at: snapshots, the largest first, and fresh filters."""

    snapshots: tuple[Snapshot, ...]
    fresh: tuple[_Fresh, ...]

    @property
    def is_settled(self) -> bool:
        """Whether no filters are fresh."""
        return not any(fresh.members for fresh in self.fresh)


class Matcher:
    """Finds the filters, of very many, that an event matches.

    `engine` is "auto" (pure until the compiled engine is ready and worth it), "pure", or "compiled",
    which waits until it is ready.
    """

    def __init__(self, registry: TypeRegistry | None = None, *, engine: Engine = "auto") -> None:
        self._registry = registry
        self._engine = engine
        self._members: dict[Hashable, tuple[Filter, Hashable | None]] = {}
        self._lock = Lock()
        self._fresh = _Fresh(registry)
        self._view = _View((), (self._fresh,))
        self._context: tuple[str, ...] = ()
        self._odd_ids = 0  # ids that are no integers of 64 bits
        self._worker: Thread | None = None
        self._building = Lock()  # held by the one who builds
        self._removed: set[Hashable] | None = None  # since he began to read
        if engine == "compiled":
            readiness.wait()
            if readiness.problem is not None:
                raise MatcherError(f"the compiled engine is not there: {readiness.problem}")

    # ---------------------------------------------------------------- changes

    def add(self, id: Hashable, filter: Filter, link: Hashable | None = None) -> None:  # noqa: A002
        """Add a filter, which counts from the next event on; `link` is where its events go."""
        with self._lock:
            if id in self._members:
                raise MatcherError(f"there is a filter with the id {id!r} already; remove it first")
            _check(filter)
            self._note(id, filter)
            self._members[id] = filter, link
            self._fresh.add(id, filter, link)
        self._tidy()

    def add_all(
        self,
        filters: Mapping[Hashable, Filter] | Iterable[tuple[Hashable, Filter]],
        link: Hashable | None = None,
    ) -> None:
        """Add many filters at once, which is several times as fast; the caller waits for the index."""
        with _collector_paused():
            pairs = list(filters.items() if isinstance(filters, Mapping) else filters)
            new = {id_: (filter_, link) for id_, filter_ in pairs}
            if len(new) < len(pairs):
                raise MatcherError("an id is given twice among the filters to add")
            self._add_all(new)
        self._tidy()

    def _add_all(self, new: dict[Hashable, tuple[Filter, Hashable | None]]) -> None:
        for filter_, _ in new.values():
            _check(filter_)
        self._check_new(new)
        if not self._is_compiled(len(new)):
            for id_, (filter_, link) in new.items():
                self.add(id_, filter_, link)
            return
        snapshot = _snapshot(new, self._registry)
        with self._lock:
            self._check_new(new)  # somebody may have added one meanwhile
            self._members.update(new)
            for id_, (filter_, _) in new.items():
                self._note(id_, filter_)
            self._view = _View(_by_size((*self._view.snapshots, snapshot)), self._view.fresh)

    def _check_new(self, new: Mapping[Hashable, object]) -> None:
        """Refuse ids that are in use."""
        for id_ in self._members.keys() & new.keys():
            raise MatcherError(f"there is a filter with the id {id_!r} already; remove it first")

    def remove(self, id: Hashable) -> None:  # noqa: A002
        """Remove a filter: it is never reported again."""
        with self._lock:
            if self._members.pop(id, None) is None:
                raise UnknownFilterError(f"there is no filter with the id {id!r}")
            self._odd_ids -= _is_odd(id)
            if self._removed is not None:
                self._removed.add(id)
            view = self._view
            if not any(fresh.remove(id) for fresh in view.fresh):
                for snapshot in view.snapshots:
                    if snapshot.remove(id):
                        break
        if _is_sparse(view.snapshots):
            self._tidy()

    def _note(self, id_: Hashable, filter_: Filter) -> None:
        """Keep count of odd ids, and note which parts of the context filters ask about."""
        self._odd_ids += _is_odd(id_)
        for conjunction in filter_.conjunctions:
            for name in conjunction.conditions:
                if name[0] == "@" and name not in self._context:
                    self._context = (*self._context, name)
            if (conjunction.types or conjunction.not_types) and "@type" not in self._context:
                self._context = (*self._context, "@type")

    # ---------------------------------------------------------------- one event

    def match(self, event: Event | Mapping[str, Any]) -> list[Any]:
        """The ids of the filters that an event matches.

        An event may also be given as a flat dictionary of attributes, the context as `@type`, ….
        """
        return self._answer(self._match, event)

    def _answer(
        self, question: Callable[[Mapping[str, Any]], Answer], event: Event | Mapping[str, Any]
    ) -> Answer:
        """Ask a question of the current view, with a closer look at the event if need be."""
        while True:
            try:
                return question(self._values(event))
            except _Retired:
                continue
            except ODD:
                if isinstance(event, Event):
                    raise
                event = event_of(event)

    def _values(self, event: Event | Mapping[str, Any]) -> Mapping[str, Any]:
        """Flat values. The compiled engine notices odd ones itself; the pure one would not."""
        if type(event) is dict:
            if not self._fresh.members and (self._view.is_settled or is_plain(event)):
                return event
            return event if is_plain(event) else checked(event)
        if isinstance(event, Event):
            return values_of(event, self._context)
        return checked(event)

    def _match(self, values: Mapping[str, Any]) -> list[Any]:
        view = self._view
        found: list[Any] = []
        for snapshot in view.snapshots:
            found = found + snapshot.match(values) if found else snapshot.match(values)
        for fresh in view.fresh:
            if fresh.members:
                found += fresh.ask(lambda index: index.match(values))
        return found

    def match_any(self, event: Event | Mapping[str, Any]) -> bool:
        """Whether some filter matches."""
        return self._answer(self._match_any, event)

    def _match_any(self, values: Mapping[str, Any]) -> bool:
        view = self._view
        if any(snapshot.match_any(values) for snapshot in view.snapshots):
            return True
        return any(fresh.members and fresh.ask(lambda index: index.match_any(values)) for fresh in view.fresh)

    def match_links(self, event: Event | Mapping[str, Any]) -> list[Any]:
        """The links of the filters that an event matches, each once."""
        return self._answer(self._match_links, event)

    def _match_links(self, values: Mapping[str, Any]) -> list[Any]:
        view = self._view
        found: dict[Any, None] = {}
        for snapshot in view.snapshots:
            found.update(dict.fromkeys(snapshot.match_links(values)))
        for fresh in view.fresh:
            if fresh.members:
                found.update(dict.fromkeys(fresh.ask(lambda index: index.match_links(values))))
        return list(found)

    def explain(self, id: Hashable, event: Event | Mapping[str, Any]) -> Explanation:  # noqa: A002
        """Which constraints of a filter an event satisfies, and which not."""
        member = self._members.get(id)
        if member is None:
            raise UnknownFilterError(f"there is no filter with the id {id!r}")
        return member[0].explain(event_of(event), self._registry)

    # ---------------------------------------------------------------- batches

    def match_batch(self, columns: Any) -> tuple[Any, Any]:
        """The ids that each row of a batch matches: `ids[offsets[i]:offsets[i + 1]]` for row `i`.

        `columns` is a pyarrow Table or RecordBatch, or a mapping of NumPy columns (see `columns`).
        Returns NumPy arrays: of int64 if all ids are such integers, else of objects. Without NumPy,
        `columns` is a mapping of lists, and the result is an array and a list.
        """
        if not self._is_compiled(FRESH):  # a batch is worth it, however few the filters
            return self._one_by_one(rows_of(columns), self._match)
        from angelia.matching import batches
        from angelia.matching.columns import batch_size

        parts = [part.match_batch(columns) for part in self._parts()]
        return batches.spliced(parts, batch_size(columns), self._odd_ids == 0)

    def route_batch(self, columns: Any) -> tuple[Any, Any]:
        """The links that each row of a batch goes to, each once, in the form of `match_batch`."""
        if not self._is_compiled(FRESH):
            return self._one_by_one(rows_of(columns), self._match_links)
        from angelia.matching import batches
        from angelia.matching.columns import batch_size

        parts = [part.match_batch(columns, by_link=True) for part in self._parts()]
        return batches.without_repeats(*batches.spliced(parts, batch_size(columns), False), len(parts))

    def match_events(self, events: Sequence[Event | Mapping[str, Any]]) -> tuple[Any, Any]:
        """The ids that each of several events matches, in the form of `match_batch`.

        For micro-batches off a network: a fraction of the time of `match` for each, from a few events on.
        Attributes that no filter asks about are not looked at, not even to check them.
        """
        found = self._ask_events(events, False)
        if found is None:
            return self._one_by_one(events, self._match)
        from angelia.matching import batches

        return batches.spliced(found, len(events), self._odd_ids == 0)

    def route_events(self, events: Sequence[Event | Mapping[str, Any]]) -> tuple[Any, Any]:
        """The links that each of several events goes to, each once, in the form of `match_batch`."""
        found = self._ask_events(events, True)
        if found is None:
            return self._one_by_one(events, self._match_links)
        from angelia.matching import batches

        return batches.without_repeats(*batches.spliced(found, len(events), False), len(found))

    def _ask_events(
        self, events: Sequence[Event | Mapping[str, Any]], by_link: bool
    ) -> list[tuple[Any, Any]] | None:
        """What the parts of the index say of some events; None if they are better asked one by one."""
        if len(events) < FEW_EVENTS or not self._is_compiled(FRESH - WORTH_EVENTS):
            return None
        values: Sequence[Any] = [values_of(event, self._context) for event in events]
        if set(map(type, values)) != {dict}:
            values = checked_all(values)
        while True:
            view = self._view
            try:
                found = [snapshot.match_events(values, by_link=by_link) for snapshot in view.snapshots]
                return found + [f.match_events(values, by_link) for f in view.fresh if f.members]
            except _Retired:
                continue
            except ODD:
                if values is (values := checked_all(values)):
                    raise

    def _parts(self) -> list[Snapshot]:
        while True:
            view = self._view
            try:
                return [*view.snapshots, *(fresh.compiled() for fresh in view.fresh if fresh.members)]
            except _Retired:
                continue

    def _one_by_one(self, rows: Iterable[Event | Mapping[str, Any]], match: Any) -> tuple[Any, Any]:
        offsets, found = csr(self._answer(match, values) for values in rows)
        try:
            from angelia.matching import batches
        except ImportError:
            return offsets, found
        return batches.as_arrays(offsets, found, self._odd_ids == 0 and match == self._match)

    # ---------------------------------------------------------------- all filters

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._members))

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self._members

    def snapshot(self) -> Snapshot:
        """All filters of this moment in one compiled index, which can be pickled and sent away."""
        readiness.wait()
        if readiness.problem is not None:
            raise MatcherError(f"a snapshot needs the compiled engine: {readiness.problem}")
        with self._lock:
            members = dict(self._members)
        return _snapshot(members, self._registry)

    def stats(self) -> Stats:
        """Figures about the index."""
        view = self._view
        snapshots = view.snapshots
        return Stats(
            filters=len(self._members),
            predicates=sum(snapshot.predicates for snapshot in snapshots),
            bytes=sum(snapshot.nbytes for snapshot in snapshots),
            snapshots=len(snapshots),
            delta=sum(map(len, view.fresh)),
            tombstones=sum(snapshot.tombstones for snapshot in snapshots),
            build_seconds=sum(snapshot.build_seconds for snapshot in snapshots),
            engine="compiled" if snapshots else "pure",
            rebuilding=self._worker is not None,
        )

    # ---------------------------------------------------------------- in the background

    def _is_compiled(self, more: int = 0) -> bool:
        """Whether the compiled engine is to be used; if it is wanted but not ready, it is prepared."""
        if self._engine == "pure":
            return False
        if readiness.is_ready:
            return True
        if len(self._members) + more >= FRESH:
            readiness.prepare(self._tidy)
        return False

    def _tidy(self) -> None:
        """Have the worker started if there is work for it."""
        view = self._view
        if len(self._fresh) < FRESH and not _is_sparse(view.snapshots):
            return
        if not self._is_compiled() or self._worker is not None:
            return
        with self._lock:
            if self._worker is None:
                self._worker = Thread(target=self._work, name="angelia-index", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        try:
            while self._rebuild():
                pass
        finally:
            self._worker = None

    def compact(self) -> None:
        """Put all filters into one snapshot; the caller waits. Nothing happens in the pure engine."""
        if self._is_compiled():
            self._rebuild(everything=True)

    def _rebuild(self, everything: bool = False) -> bool:
        """Make one snapshot of the fresh filters and the snapshots that are due; whether there was work."""
        from angelia.matching.snapshot import Snapshot

        with self._building:
            with self._lock:
                view = self._view
                frozen = self._fresh if everything or len(self._fresh) >= FRESH else None
                merged = view.snapshots if everything else _due(view.snapshots, len(frozen or ()))
                if not frozen and not merged:
                    return False
                if frozen is not None:
                    self._fresh = _Fresh(self._registry)
                    self._view = _View(view.snapshots, (frozen, self._fresh))
                self._removed = set()
            ids, filters, links, has_links = self._read([*merged, *([frozen] if frozen else [])])
            built = Snapshot(ids, filters, links if has_links else None, self._registry, _give_way)
            with self._lock:
                for id_ in self._removed:
                    built.remove(id_)
                self._removed = None
                kept = [snapshot for snapshot in self._view.snapshots if snapshot not in merged]
                self._view = _View(_by_size((*kept, built)), (self._fresh,))
        if frozen is not None:
            frozen.retire(_give_way)
        return True

    def _read(
        self, sources: Iterable[Snapshot | _Fresh]
    ) -> tuple[list[Hashable], list[Filter], list[Hashable | None], bool]:
        """The filters of snapshots and fresh ones that are still there, in slices; whether with links."""
        has_links = False
        ids: list[Hashable] = []
        filters: list[Filter] = []
        links: list[Hashable | None] = []
        for source in sources:
            # An id may come back with another filter while this reads: what is in `source` is the old one.
            there = source.members if isinstance(source, _Fresh) else source
            known = list(there) if isinstance(source, _Fresh) else source.ids
            for start in range(0, len(known), READ_SLICE):
                with self._lock:
                    for id_ in known[start : start + READ_SLICE]:
                        if id_ in there:
                            filter_, link = self._members[id_]
                            ids.append(id_)
                            filters.append(filter_)
                            links.append(link)
                            has_links |= link is not None
                _give_way()
        return ids, filters, links, has_links


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A bulk load makes many objects and no garbage: to look for some takes longer than all the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_odd(id_: Hashable) -> bool:
    return not (type(id_) is int and -(2**63) <= id_ < 2**63)


def _check(filter_: object) -> None:
    if not isinstance(filter_, Filter):
        raise MatcherError(f"a matcher takes Filters, not {type(filter_).__name__}; see Filter.parse")


def _give_way() -> None:
    # Longer than zero: else this thread has the GIL again before another one wakes up.
    time.sleep(PAUSE)


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


def _by_size(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    return tuple(sorted(snapshots, key=len, reverse=True))
