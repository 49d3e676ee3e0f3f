"""The matcher: finds the filters, of very many, that an event matches.

Here are the questions; `store` has the filters, and the parts of the index that they are in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from angelia.errors import EventError, MatcherError, UnknownFilterError
from angelia.event import Event
from angelia.filter import Explanation, Filter
from angelia.matching.fallback import PureIndex
from angelia.matching.ready import readiness
from angelia.matching.store import FRESH, Retired, Store, snapshot_of
from angelia.matching.values import ODD, checked, checked_all, csr, event_of, is_plain, rows_of, values_of

if TYPE_CHECKING:
    from angelia.matching.snapshot import Snapshot
    from angelia.types import TypeRegistry

__all__ = ["Matcher", "Stats"]

WORTH_EVENTS = 64  # filters from which on micro-batches are worth the compiled engine
FEW_EVENTS = 8  # below which a micro-batch is matched one by one ...
FEW_FOR_SMALL, SMALL = 32, 1 << 14  # ... or below that, where one snapshot of no more filters has them all

Engine = Literal["auto", "pure", "compiled"]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Stats:
    """What a matcher holds. `bytes` is the memory of the tables that matching reads."""

    filters: int
    predicates: int
    bytes: int
    snapshots: int
    delta: int
    tombstones: int
    build_seconds: float
    engine: str
    rebuilding: bool


class Matcher:
    """Finds the filters, of very many, that an event matches.

    `engine` is "auto" (pure until the compiled engine is ready and worth it), "pure", or "compiled",
    which waits until it is ready.
    """

    def __init__(self, registry: TypeRegistry | None = None, *, engine: Engine = "auto") -> None:
        if engine not in get_args(Engine):
            raise MatcherError(f"there is no engine {engine!r}; there are {', '.join(get_args(Engine))}")
        self._registry = registry
        self._engine = engine
        self._store = Store(registry, self._is_compiled)
        if engine == "compiled":
            readiness.wait()
            if readiness.problem is not None:
                raise MatcherError(f"the compiled engine is not there: {readiness.problem}")

    # ---------------------------------------------------------------- changes

    def add(self, id: Hashable, filter: Filter, link: Hashable | None = None) -> None:  # noqa: A002
        """Add a filter, which counts from the next event on; `link` is where its events go."""
        self._store.add(id, filter, link)

    def add_all(
        self,
        filters: Mapping[Hashable, Filter] | Iterable[tuple[Hashable, Filter]],
        link: Hashable | None = None,
    ) -> None:
        """Add many filters at once, which is several times as fast; the caller waits for the index."""
        with _collector_paused():
            pairs = list(filters.items() if isinstance(filters, Mapping) else filters)
            new = dict(pairs)
            if len(new) < len(pairs):
                raise MatcherError("an id is given twice among the filters to add")
            ids, some = list(new), list(new.values())
            if self._is_compiled(len(new)):
                self._store.add_all(ids, some, link)
            else:
                self._store.check_new(ids, some)
                for id_, filter_ in new.items():
                    self._store.add(id_, filter_, link)

    def remove(self, id: Hashable) -> None:  # noqa: A002
        """Remove a filter: it is never reported again."""
        self._store.remove(id)

    def compact(self) -> None:
        """Put all filters into one snapshot; the caller waits. Nothing happens in the pure engine."""
        if self._is_compiled():
            self._store.compact()

    # ---------------------------------------------------------------- one event

    def match(self, event: Event | Mapping[str, Any]) -> list[Any]:
        """The ids of the filters that an event matches.

        An event may also be given as a flat dictionary of attributes, the context as `@type`, ….
        """
        only = self._store.view.only
        if only is not None and type(event) is dict and (found := only.ask(event)) is not None:
            return found
        return self._answer(self._match, event)

    def _answer(
        self, question: Callable[[Mapping[str, Any]], Answer], event: Event | Mapping[str, Any]
    ) -> Answer:
        """Ask a question of the current view, with a closer look at the event if need be."""
        while True:
            try:
                return question(self._values(event))
            except Retired:
                continue
            except ODD:
                if isinstance(event, Event):
                    raise
                event = event_of(event)

    def _values(self, event: Event | Mapping[str, Any]) -> Mapping[str, Any]:
        """Flat values. The compiled engine notices odd ones itself; the pure one would not."""
        if type(event) is dict:
            return event if self._store.view.is_settled or is_plain(event) else checked(event)
        if isinstance(event, Event):
            return values_of(event, self._store.context)
        return checked(event)

    def _match(self, values: Mapping[str, Any]) -> list[Any]:
        view = self._store.view
        found: list[Any] = []
        for snapshot in view.snapshots:
            found = found + snapshot.match(values) if found else snapshot.match(values)
        for fresh in view.fresh:
            if fresh.members:
                found += fresh.ask(PureIndex.match, values)
        return found

    def match_any(self, event: Event | Mapping[str, Any]) -> bool:
        """Whether some filter matches."""
        return self._answer(self._match_any, event)

    def _match_any(self, values: Mapping[str, Any]) -> bool:
        view = self._store.view
        if any(snapshot.match_any(values) for snapshot in view.snapshots):
            return True
        return any(fresh.members and fresh.ask(PureIndex.match_any, values) for fresh in view.fresh)

    def match_links(self, event: Event | Mapping[str, Any]) -> list[Any]:
        """The links of the filters that an event matches, each once."""
        return self._answer(self._match_links, event)

    def _match_links(self, values: Mapping[str, Any]) -> list[Any]:
        view = self._store.view
        found: dict[Any, None] = {}
        for snapshot in view.snapshots:
            found.update(dict.fromkeys(snapshot.match_links(values)))
        for fresh in view.fresh:
            if fresh.members:
                found.update(dict.fromkeys(fresh.ask(PureIndex.match_links, values)))
        return list(found)

    def explain(self, id: Hashable, event: Event | Mapping[str, Any]) -> Explanation:  # noqa: A002
        """Which constraints of a filter an event satisfies, and which not."""
        member = self._store.members.get(id)
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
            return self._one_by_one(rows_of(columns), self.match)
        from angelia.matching import batches
        from angelia.matching.columns import batch_size

        parts = [part.match_batch(columns) for part in self._parts()]
        return batches.spliced(parts, batch_size(columns), self._store.odd_ids == 0)

    def route_batch(self, columns: Any) -> tuple[Any, Any]:
        """The links that each row of a batch goes to, each once, in the form of `match_batch`."""
        if not self._is_compiled(FRESH):
            return self._one_by_one(rows_of(columns), self.match_links)
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
            return self._one_by_one(events, self.match)
        from angelia.matching import batches

        return batches.spliced(found, len(events), self._store.odd_ids == 0)

    def route_events(self, events: Sequence[Event | Mapping[str, Any]]) -> tuple[Any, Any]:
        """The links that each of several events goes to, each once, in the form of `match_batch`."""
        found = self._ask_events(events, True)
        if found is None:
            return self._one_by_one(events, self.match_links)
        from angelia.matching import batches

        return batches.without_repeats(*batches.spliced(found, len(events), False), len(found))

    def _ask_events(
        self, events: Sequence[Event | Mapping[str, Any]], by_link: bool
    ) -> list[tuple[Any, Any]] | None:
        """What the parts of the index say of some events; None if they are better asked one by one."""
        only = self._store.view.only
        few = FEW_EVENTS if only is None or len(only.ids) > SMALL else FEW_FOR_SMALL
        if len(events) < few or not self._is_compiled(FRESH - WORTH_EVENTS):
            return None
        values: Sequence[Any] = [values_of(event, self._store.context) for event in events]
        if set(map(type, values)) != {dict}:
            values = checked_all(values)
        while True:
            view = self._store.view
            try:
                found = [snapshot.match_events(values, by_link=by_link) for snapshot in view.snapshots]
                return found + [f.match_events(values, by_link) for f in view.fresh if f.members]
            except Retired:
                continue
            except ODD:
                if values is (values := checked_all(values)):
                    raise

    def _parts(self) -> list[Snapshot]:
        while True:
            view = self._store.view
            try:
                return [*view.snapshots, *(fresh.compiled() for fresh in view.fresh if fresh.members)]
            except Retired:
                continue

    def _one_by_one(
        self,
        rows: Iterable[Event | Mapping[str, Any]],
        match: Callable[[Event | Mapping[str, Any]], list[Any]],
    ) -> tuple[Any, Any]:
        try:
            offsets, found = csr(map(match, rows))
        except EventError:
            if isinstance(rows, Sequence):
                checked_all(rows)  # which says which one it is
            raise
        try:
            from angelia.matching import batches
        except ImportError:
            return offsets, found
        return batches.as_arrays(offsets, found, self._store.odd_ids == 0 and match == self.match)

    # ---------------------------------------------------------------- all filters

    def __len__(self) -> int:
        return len(self._store.members)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._store.members)

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self._store.members

    def snapshot(self) -> Snapshot:
        """All filters of this moment in one compiled index, which can be pickled and sent away."""
        readiness.wait()
        if readiness.problem is not None:
            raise MatcherError(f"a snapshot needs the compiled engine: {readiness.problem}")
        with _collector_paused():
            return snapshot_of(self._store.all_members(), self._registry)

    def stats(self) -> Stats:
        """Figures about the index."""
        view = self._store.view
        snapshots = view.snapshots
        return Stats(
            filters=len(self._store.members),
            predicates=sum(snapshot.predicates for snapshot in snapshots),
            bytes=sum(snapshot.nbytes for snapshot in snapshots),
            snapshots=len(snapshots),
            delta=self._store.delta,
            tombstones=sum(snapshot.tombstones for snapshot in snapshots),
            build_seconds=sum(snapshot.build_seconds for snapshot in snapshots),
            engine="compiled" if snapshots else "pure",
            rebuilding=self._store.worker is not None,
        )

    def _is_compiled(self, more: int = 0) -> bool:
        """Whether the compiled engine is to be used; if it is wanted but not ready, it is prepared."""
        if self._engine == "pure":
            return False
        if readiness.is_ready:
            return True
        if len(self._store.members) + more >= FRESH:
            readiness.prepare(self._store.tidy)
        return False


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
