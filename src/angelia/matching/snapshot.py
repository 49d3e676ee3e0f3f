"""Snapshots: compiled indexes over a fixed set of filters.

A snapshot never changes but in one way: a filter can be marked as removed. It answers for one event or
for a batch, from several threads at once, and can be pickled: the tables go, what was learnt about
strings stays behind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from angelia.filter import Filter
from angelia.matching.ask_kernels import ask
from angelia.matching.block_kernels import match_blocks
from angelia.matching.build import Tables, build
from angelia.matching.columns import RankedBatch, batch_size, rank_batch, split
from angelia.matching.encode import ROOM, Encoder, Workspace
from angelia.matching.events import rank_events
from angelia.matching.layout import BLOCK, H_NODE_COUNT
from angelia.matching.ranking import gathered, let_go
from angelia.matching.walk_kernels import match_one

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Csr", "Snapshot"]

Csr = tuple[NDArray[np.int64], NDArray[Any]]
Asker = Callable[[Mapping[str, Any]], list[Any] | None]

NO_LIMIT = -1
HAS_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()  # the interpreter's, which `ask` relies on
MAX_EVENTS = 4096  # events of a list that are encoded at once
SLICE = 4096  # ids looked at between two pauses


class Lineages:
    """The hierarchy of event types as it was when a snapshot was pickled."""

    __slots__ = ("_lineages",)
    version = 0

    def __init__(self, registry: TypeRegistry) -> None:
        self._lineages = {name: frozenset(registry.ancestors(name)) for name in registry}

    def is_subtype(self, name: str, of: str) -> bool:
        """Whether `name` is `of` or one of its descendants."""
        return name == of or of in self._lineages.get(name, ())


class Snapshot:
    """A compiled index. `ids` are the filters' by number; `alive` tells which are not removed, and
    `linked` which of these have a link.
    """

    def __init__(
        self,
        ids: Sequence[Hashable],
        filters: Sequence[Filter],
        links: Sequence[Hashable | None] | None = None,
        registry: TypeRegistry | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        started = time.perf_counter()
        self.registry: Any = registry
        self.links: list[Hashable] = []
        self.tables: Tables = build(filters, self._numbered(links, pause), pause)
        numbers = self.tables.numbers
        self.ids = np.empty(len(ids), object)
        for start in range(0, len(ids), SLICE):
            self.ids[numbers[start : start + SLICE]] = np.fromiter(ids[start : start + SLICE], object)
            pause()
        self.alive = np.ones(len(ids) + 1, np.uint8)
        self.linked = np.zeros(len(ids) + 1, np.uint8)
        if links is not None:
            has_link = (link is not None for link in links)
            self.linked[numbers] = gathered(has_link, len(ids), np.uint8, pause)
        self._prepare(pause)
        self.build_seconds = time.perf_counter() - started

    def _numbered(
        self, links: Sequence[Hashable | None] | None, pause: Callable[[], None]
    ) -> NDArray[np.uint32] | None:
        if links is None:
            return None
        places: dict[Hashable, int] = {}
        numbered = (places.setdefault(link, len(places)) for link in links)
        numbers = gathered(numbered, len(links), np.uint32, pause)
        self.links = list(places)
        return numbers

    def _prepare(self, pause: Callable[[], None]) -> None:
        # Numbers by id: a dictionary would take its time to grow, in one step.
        hashes = gathered(map(hash, self.ids), len(self.ids), np.int64, pause)
        pause()
        self._by_hash = np.argsort(hashes, kind="stable").astype(np.uint32)
        pause()
        self._hashes = hashes[self._by_hash]
        pause()
        self.tombstones = len(self.ids) - int(np.count_nonzero(self.alive[:-1]))
        self.all_ints = True
        for start in range(0, len(self.ids), SLICE):
            some = self.ids[start : start + SLICE].tolist()
            self.all_ints &= set(map(type, some)) == {int} and min(some) >= -(2**63) and max(some) < 2**63
            pause()
        self._outputs = np.arange(len(self.ids), dtype=np.int64)
        if self.all_ints:
            self._outputs = gathered(self.ids, len(self.ids), np.int64, pause)
        self._encoder = Encoder(self.tables, self.registry)
        self._workspaces: list[Workspace] = []
        self._asked: Workspace | None = None
        self.ask: Asker = _no_answer

    def __getstate__(self) -> dict[str, Any]:
        kept = ("build_seconds", "ids", "links", "tables")
        state = {name: getattr(self, name) for name in kept}
        # What is removed later shall not change what was pickled, nor the other way round.
        state.update(alive=self.alive.copy(), linked=self.linked.copy())
        state["registry"] = self._types()
        return state

    def _types(self) -> Lineages | None:
        """The hierarchy of types, if it matters, as it is now."""
        if self.registry is None or not any(slot.texts.has_types for slot in self.tables.slots):
            return None
        return self.registry if isinstance(self.registry, Lineages) else Lineages(self.registry)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare(lambda: None)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.ids[self.alive[:-1] > 0].tolist())

    def __contains__(self, id_: object) -> bool:
        return self._number(id_) is not None

    def __len__(self) -> int:
        return len(self.ids) - self.tombstones

    def _number(self, id_: object) -> int | None:
        """The number of a filter that is there."""
        key = hash(id_)
        place = int(self._hashes.searchsorted(key))
        while place < len(self._hashes) and self._hashes[place] == key:
            number = int(self._by_hash[place])
            if self.alive[number] and self.ids[number] == id_:
                return number
            place += 1
        return None

    @property
    def nbytes(self) -> int:
        """The memory of the tables."""
        tables = self.tables
        arrays = (tables.words, tables.ints, tables.floats, self._outputs, self.alive)
        return sum(each.nbytes for each in arrays)

    @property
    def predicates(self) -> int:
        """How many nodes the trie has: predicates, those that many filters begin with counted once."""
        return int(self.tables.words[H_NODE_COUNT])

    def remove(self, id_: Hashable) -> bool:
        """Never report a filter again; whether it was there."""
        number = self._number(id_)
        if number is None:
            return False
        self.alive[number] = self.linked[number] = 0
        self.tombstones += 1
        return True

    def dissolve(self, pause: Callable[[], None]) -> None:
        """Let go of the ids and of what was learnt, in slices. The snapshot is of no use any more."""
        let_go(self.ids, pause)
        self._encoder.dissolve(pause)

    # ---------------------------------------------------------------- one event

    def match(self, values: Mapping[str, Any]) -> list[Any]:
        """The ids that flat values (see `values`) match."""
        asked = self.ask(values)
        if asked is not None:
            return asked
        workspace = self._workspace()
        try:
            count, listed = self._run(workspace, values, NO_LIMIT, False)
            found = workspace.out[:count]
            ids: list[Any] = found.tolist() if self.all_ints else self.ids[found].tolist()
        finally:
            self._workspaces.append(workspace)
        if (
            self._asked is None
            or self._asked.encoder is not workspace.encoder
            or count > len(self._asked.out)
        ):
            self._let_ask(workspace.encoder, count)
        return list(dict.fromkeys(ids)) if listed else ids

    def _let_ask(self, encoder: Encoder, count: int) -> None:
        """Have `ask` answer from now on, with what an encoder knows and room for some matches.

        It answers for most events; who calls it holds this snapshot, and goes the longer way if it says None.
        """
        if not HAS_LOCK:
            return
        self._asked = asked = self._new_workspace(encoder, max(ROOM, 2 * count))
        answer = ask((asked.context.ctypes.data, asked, None))
        if encoder.is_watching:
            self.ask = lambda values: None if encoder.is_outdated() else answer(values)
        else:
            self.ask = answer

    def match_any(self, values: Mapping[str, Any]) -> bool:
        """Whether they match some filter."""
        workspace = self._workspace()
        try:
            return self._run(workspace, values, 1, False)[0] > 0
        finally:
            self._workspaces.append(workspace)

    def match_links(self, values: Mapping[str, Any]) -> list[Any]:
        """The links of the filters that they match."""
        if not self.links:
            return []
        workspace = self._workspace()
        try:
            count, _ = self._run(workspace, values, len(self.links), True)
            return [self.links[number] for number in workspace.out[:count].tolist()]
        finally:
            self._workspaces.append(workspace)

    def _workspace(self) -> Workspace:
        """A workspace that no other thread uses; to be given back."""
        encoder = self._encoder
        if encoder.is_outdated():
            encoder = self._encoder = Encoder(self.tables, self.registry)
        if self._workspaces:
            try:
                workspace = self._workspaces.pop()
            except IndexError:  # another thread was faster
                pass
            else:
                if workspace.encoder is encoder:
                    return workspace
        return self._new_workspace(encoder)

    def _new_workspace(self, encoder: Encoder, room: int = ROOM) -> Workspace:
        objects = None if self.all_ints else self.ids
        return Workspace(encoder, self._outputs, objects, self.alive, self.linked, room)

    def _run(
        self, workspace: Workspace, values: Mapping[str, Any], limit: int, by_link: bool
    ) -> tuple[int, bool]:
        """Match one event; how many filters or links, and whether there are lists among its values."""
        encoder = workspace.encoder
        key = (*values, *map(type, values.values()))
        plan = encoder.plans.get(key)
        if plan is None:
            plan = encoder.plan(key)
        if plan.is_simple:
            plan.pack(
                workspace.buffer, 0, *map(getitem, plan.codes, plan.coded(values)), *plan.numbers(values)
            )
        else:
            workspace.use_elements(encoder.pack_slowly(plan, values, workspace.buffer))
        while True:
            count: int = match_one(workspace.context, plan.table, limit, by_link)
            if count <= len(workspace.out):
                return count, bool(plan.slots)
            workspace.reserve(2 * count)

    # ---------------------------------------------------------------- batches

    def match_batch(self, columns: Any, *, by_link: bool = False) -> Csr:
        """The ids (or links) that each row of a batch matches, as offsets and ids."""
        if by_link and not self.links:
            return np.zeros(batch_size(columns) + 1, np.int64), np.zeros(0, object)
        parts = []
        workspace = self._workspace()
        try:
            for rows, part in split(columns):
                ranked = rank_batch(rows, part, workspace.encoder, workspace, self.tables.slots, _pitch(rows))
                parts.append(self._match_ranked(rows, ranked, workspace, by_link))
        finally:
            self._workspaces.append(workspace)
        return self._named(_joined(parts), by_link)

    def match_events(self, events: Sequence[Mapping[str, Any]], *, by_link: bool = False) -> Csr:
        """The ids (or links) that each of some flat values matches, as offsets and ids."""
        if not events or (by_link and not self.links):
            return np.zeros(len(events) + 1, np.int64), np.zeros(0, object)
        parts = []
        workspace = self._workspace()
        try:
            for start in range(0, len(events), MAX_EVENTS):
                some = events[start : start + MAX_EVENTS]
                ranked = rank_events(some, workspace.encoder, self.tables.slots, _pitch(len(some)))
                parts.append(self._match_ranked(len(some), ranked, workspace, by_link))
        finally:
            self._workspaces.append(workspace)
        return self._named(_joined(parts), by_link)

    def _named(self, csr: Csr, by_link: bool) -> Csr:
        """Ids or links for what kernels found."""
        offsets, found = csr
        if by_link:
            return offsets, _objects(self.links)[found]
        return offsets, found if self.all_ints else self.ids[found]

    def _match_ranked(self, rows: int, ranked: RankedBatch, workspace: Workspace, by_link: bool) -> Csr:
        ranks, texts, places, flags, elements = ranked
        offsets, found, _ = match_blocks(
            self.tables.words, self._outputs, self.linked if by_link else self.alive, ranks, texts, places,
            flags, rows, workspace.encoder.items, elements, workspace.row_of, by_link,
        )  # fmt: skip
        return offsets, found


def _no_answer(_: Mapping[str, Any]) -> list[Any] | None:
    """What is asked first learns nothing: the first event goes the longer way."""
    return None


def _pitch(rows: int) -> int:
    """The length of a column of ranks: full blocks."""
    return -(-rows // BLOCK) * BLOCK


def _objects(things: Sequence[Any]) -> NDArray[Any]:
    """An array of objects, tuples among them too."""
    return np.fromiter(things, object, len(things))


def _joined(parts: Sequence[Csr]) -> Csr:
    """Results of parts of a batch, one after another, as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros(1, np.int64), np.zeros(0, np.int64)
    offsets, before = [np.zeros(1, np.int64)], 0
    for starts, _ in parts:
        offsets.append(starts[1:] + before)
        before += int(starts[-1])
    return np.concatenate(offsets), np.concatenate([found for _, found in parts])
