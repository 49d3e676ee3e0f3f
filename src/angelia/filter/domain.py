r"""Domains: the sets of values that constraints on one attribute allow.

Each operator of the language denotes a domain, and a conjunction of constraints on one attribute is
the intersection of theirs. A domain is held in a canonical form, so that emptiness, equality,
inclusion and intersection are decided by looking at it:

- `kind` is the kind of its values; `None` stands for any value at all (`exists`);
- a finite domain lists its `points`;
- any other domain is an interval between two cuts (`low`, `high`) less the `excluded` points, and,
  for strings, with a `suffix`, `contains` and `patterns` that must all hold. A prefix is an
  interval: the strings that start with "ab" are those from "ab" up to, but without, "ac".

Inclusion and emptiness are exact as long as no `contains` or `patterns` take part; with them they
err on the safe side (see `covers`). Values are taken as dense: that no float lies between two
neighbours, or no string between "a" and "a\0", is not used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from os.path import commonprefix
from typing import Any

import msgspec
import re2

from angelia.event import KINDS, Kind, Scalar

__all__ = [
    "ABOVE_ALL",
    "ANY",
    "BELOW_ALL",
    "EMPTY",
    "Cut",
    "Domain",
    "after",
    "before",
    "in_any",
    "intersected",
    "join",
    "subtract",
    "united",
]

# A cut is a place between values: just before one, just after one, or beyond all. An interval is
# what lies between two cuts, so that open and closed ends need no cases: cuts compare as tuples.
Cut = tuple[Any, ...]
BELOW_ALL: Cut = (-1,)
ABOVE_ALL: Cut = (1,)


def before(value: Scalar) -> Cut:
    """The cut just before a value: a closed low end, or an open high end."""
    return (0, value, 0)


def after(value: Scalar) -> Cut:
    """The cut just after a value: an open low end, or a closed high end."""
    return (0, value, 1)


FIRST_STRING = before("")
NOTHING: frozenset[Any] = frozenset()  # one for all, or the collector had millions


class Domain(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A set of attribute values. Make one with `Domain.of` or with an operator, not by hand.

    Like all parts of filters it is out of the garbage collector's sight: there may be millions.
    """

    kind: Kind | None
    points: frozenset[Scalar] | None = None
    low: Cut = BELOW_ALL
    high: Cut = ABOVE_ALL
    excluded: frozenset[Scalar] = NOTHING
    suffix: str = ""
    contains: frozenset[str] = NOTHING
    patterns: frozenset[str] = NOTHING

    @staticmethod
    def of(
        kind: Kind,
        *,
        points: Iterable[Scalar] | None = None,
        low: Cut = BELOW_ALL,
        high: Cut = ABOVE_ALL,
        excluded: Iterable[Scalar] = (),
        suffixes: Iterable[str] = (),
        contains: Iterable[str] = (),
        patterns: Iterable[str] = (),
    ) -> Domain:
        """The canonical domain of the values that satisfy all that is given."""
        if kind is Kind.BOOLEAN and points is None:
            points = (False, True)
        if kind is Kind.STRING:
            low = max(low, FIRST_STRING)
        suffix = max(suffixes := tuple(suffixes), key=len, default="")
        if not all(suffix.endswith(other) for other in suffixes):
            return EMPTY
        if points is None and low[:2] == high[:2] and low < high and low[0] == 0:
            points = (low[1],)
        raw = Domain(kind, None, low, high, _set(excluded), suffix, _set(contains), _set(patterns))
        if points is not None:
            return _finite(kind, (point for point in points if point in raw))
        return _tidied(raw) if low < high else EMPTY

    def __contains__(self, value: Scalar) -> bool:
        if self.kind is None:
            return True
        if KINDS[type(value)] is not self.kind:
            return False
        if self.points is not None:
            return value in self.points
        return (
            self.low <= (0, value, 0)
            and self.high >= (0, value, 1)
            and value == value  # NaN compares with nothing
            and value not in self.excluded
            and not ((self.suffix or self.contains or self.patterns) and not self.reads(value))  # type: ignore[arg-type]
        )

    def reads(self, text: str) -> bool:
        """Whether a string satisfies what is asked of its text."""
        if not text.endswith(self.suffix):
            return False
        for part in self.contains:
            if part not in text:
                return False
        return not self.patterns or all(search(pattern, text) for pattern in self.patterns)

    @property
    def is_empty(self) -> bool:
        """Whether no value belongs to the domain."""
        return self.points is not None and not self.points

    @property
    def reads_text(self) -> bool:
        """Whether `suffix`, `contains` or `patterns` take part."""
        return bool(self.suffix or self.contains or self.patterns)

    @property
    def has_low(self) -> bool:
        """Whether the low end says more than the kind and the text do."""
        if self.kind is not Kind.STRING or self.low > after(""):
            return self.low != BELOW_ALL
        return self.low == after("") and self.reads("")

    @property
    def has_high(self) -> bool:
        """Whether there is a high end."""
        return self.high != ABOVE_ALL

    @property
    def is_whole_kind(self) -> bool:
        """Whether every value of the kind belongs to the domain."""
        if self.points is not None:
            return len(self.points) == 2 and self.kind is Kind.BOOLEAN
        return self.kind is not None and not (
            self.has_low or self.has_high or self.excluded or self.reads_text
        )

    @property
    def prefix(self) -> str:
        """The prefix whose strings are the interval (itself perhaps excluded), else ""."""
        if self.kind is not Kind.STRING or self.points is not None:
            return ""
        start: str = self.low[1]
        return start if self.high == prefix_end(start) else ""

    @property
    def common_prefix(self) -> str:
        """A prefix that all strings of an infinite domain have."""
        if self.kind is not Kind.STRING or not self.has_high:
            return self.prefix
        return self.prefix or commonprefix([self.low[1], self.high[1]])

    def covers(self, other: Domain, without: tuple[Domain, ...] = ()) -> bool:
        """Whether every value of `other`, except those in `without`, belongs to this domain.

        Never true where it should be false. False where it should be true only if `contains` or
        `patterns` of this domain follow from something else than the same in `other`, or from a
        part of its prefix or suffix.
        """
        if self.kind is None:
            return True
        if self.kind is not other.kind:
            return other.is_empty
        if other.points is not None:
            if self.points is not None and not without:
                return self.points >= other.points
            for point in other.points:  # noqa: SIM110 - posets spend their time here
                if point not in self and not in_any(point, without):
                    return False
            return True
        if self.points is not None or self.low > other.low or self.high < other.high:
            return False
        if self.excluded and self.excluded != other.excluded:
            for point in self.excluded:
                if (
                    point not in other.excluded
                    and point in other
                    and not (without and in_any(point, without))
                ):
                    return False
        if not self.reads_text:
            return True
        return (
            other.suffix.endswith(self.suffix)
            and self.patterns <= other.patterns
            and not (self.contains and not all(map(other._implies_contains, self.contains)))
        )

    def _implies_contains(self, part: str) -> bool:
        return (
            part in self.suffix
            or part in self.common_prefix
            or any(part in longer for longer in self.contains)
        )

    def intersection(self, other: Domain) -> Domain:
        """The values that belong to both."""
        if self.kind is None:
            return other
        if other.kind is None:
            return self
        if self.kind is not other.kind:
            return EMPTY
        if self.points is not None:
            return _finite(self.kind, (point for point in self.points if point in other))
        return Domain.of(
            self.kind,
            points=other.points if other.points is None else [p for p in other.points if p in self],
            low=max(self.low, other.low),
            high=min(self.high, other.high),
            excluded=self.excluded | other.excluded,
            suffixes=(self.suffix, other.suffix),
            contains=self.contains | other.contains,
            patterns=self.patterns | other.patterns,
        )

    def spans(self) -> list[tuple[Cut, Cut]]:
        """Pairs of cuts that, in order, make up a domain that does not read text."""
        inside: list[Any]
        if self.points is not None:
            inside = sorted(self.points)
            return [(before(point), after(point)) for point in inside]
        inside = sorted(self.excluded)
        lows = [self.low, *(after(point) for point in inside)]
        highs = [*(before(point) for point in inside), self.high]
        return list(zip(lows, highs, strict=True))


EMPTY = Domain(Kind.BOOLEAN, frozenset())
ANY = Domain(None)


# ---------------------------------------------------------------- canonical form


def _set(values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) or NOTHING


def _finite(kind: Kind, points: Iterable[Scalar]) -> Domain:
    kept = frozenset(points)
    return Domain(kind, kept) if kept else EMPTY


def _tidied(raw: Domain) -> Domain:
    """An infinite domain with tight ends and no redundant part."""
    low, high = raw.low, raw.high
    # An end that does not belong to the domain is open: what compares domains sees one form only.
    if low[0] == 0 and low[2] == 0 and low[1] not in raw:
        low = after(low[1])
    if high[0] == 0 and high[2] == 1 and high[1] not in raw:
        high = before(high[1])
    bare = Domain(raw.kind, None, low, high, NOTHING, raw.suffix, raw.contains, raw.patterns)
    if not (raw.excluded or raw.contains):
        return bare
    return msgspec.structs.replace(
        bare,
        excluded=_set(point for point in raw.excluded if point in bare),
        contains=_needed_parts(bare),
    )


def _needed_parts(domain: Domain) -> frozenset[str]:
    """The `contains` that do not follow from the prefix, the suffix or a longer one."""
    if not domain.contains:
        return domain.contains
    start, parts = domain.common_prefix, domain.contains
    return _set(
        part
        for part in parts
        if part not in start
        and part not in domain.suffix
        and not any(part in other and part != other for other in parts)
    )


def prefix_end(prefix: str) -> Cut:
    """The high end of the interval of strings with this prefix."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return ABOVE_ALL
    following = ord(head[-1]) + 1
    return before(head[:-1] + chr(0xE000 if following == 0xD800 else following))


def intersected(domains: list[Domain]) -> Domain:
    """The values that belong to all of several domains, which are put together at once."""
    limited = [domain for domain in domains if domain.kind is not None]
    if len(limited) < 2:
        return limited[0] if limited else ANY
    kind = limited[0].kind
    assert kind is not None
    if any(domain.kind is not kind for domain in limited):
        return EMPTY
    finite = [domain.points for domain in limited if domain.points is not None]
    rest = [domain for domain in limited if domain.points is None]
    return Domain.of(
        kind,
        points=frozenset.intersection(*finite) if finite else None,
        low=max((domain.low for domain in rest), default=BELOW_ALL),
        high=min((domain.high for domain in rest), default=ABOVE_ALL),
        excluded=frozenset[Scalar]().union(*(domain.excluded for domain in rest)),
        suffixes={domain.suffix for domain in rest},
        contains=frozenset[str]().union(*(domain.contains for domain in rest)),
        patterns=frozenset[str]().union(*(domain.patterns for domain in rest)),
    )


def in_any(value: Scalar, domains: Iterable[Domain]) -> bool:
    """Whether some of the domains holds the value."""
    return any(value in domain for domain in domains)


# ---------------------------------------------------------------- unions


def united(domains: Iterable[Domain]) -> tuple[Domain, ...]:
    """Domains with the same union in canonical form: few, disjoint as far as they are intervals."""
    parts = set(domains) - {EMPTY}
    if ANY in parts:
        return (ANY,)
    if len(parts) < 2:
        return tuple(parts)
    plain = [part for part in parts if not part.reads_text]
    kept = [piece for kind in Kind for piece in _joined_spans(kind, plain)]
    for part in sorted(parts - set(plain), key=_order):
        if not any(other.covers(part) for other in kept):
            kept = [other for other in kept if not part.covers(other)]
            kept.append(part)
    return tuple(sorted(kept, key=_order))


def _joined_spans(kind: Kind, domains: list[Domain]) -> list[Domain]:
    """Intervals, and one set of points, with the union of the domains of this kind."""
    joined: list[tuple[Cut, Cut]] = []
    for low, high in sorted(span for domain in domains if domain.kind is kind for span in domain.spans()):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    pieces = [_interval(kind, group) for group in _neighbours(joined)]
    points = frozenset[Scalar]().union(*(piece.points for piece in pieces if piece.points))
    return [
        *(piece for piece in pieces if piece.points is None),
        *([_finite(kind, points)] if points else []),
    ]


def _neighbours(spans: list[tuple[Cut, Cut]]) -> list[list[tuple[Cut, Cut]]]:
    """Spans in groups in which one value only lies between each and the next."""
    groups: list[list[tuple[Cut, Cut]]] = []
    for span in spans:
        if groups and groups[-1][-1][1][:2] == span[0][:2]:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def _interval(kind: Kind, spans: list[tuple[Cut, Cut]]) -> Domain:
    """From the first span to the last, without the values between them."""
    return Domain.of(kind, low=spans[0][0], high=spans[-1][1], excluded=[high[1] for _, high in spans[:-1]])


def _order(domain: Domain) -> str:
    """A key that orders domains in the same way in every run."""
    sets = (domain.points or (), domain.excluded, domain.contains, domain.patterns)
    return repr((domain.kind, domain.low, domain.high, domain.suffix, [sorted(map(repr, s)) for s in sets]))


def subtract(domain: Domain, refused: Iterable[Domain]) -> Domain:
    """`domain` less the refused at its ends. A hole in its middle, which no domain can have, stays."""
    refused = tuple(refused)
    if domain.kind is None or not refused:
        return domain
    if domain.points is not None:
        return _finite(domain.kind, _outside(domain.kind, domain.points, refused))
    low, high = domain.low, domain.high
    for piece in refused:
        if piece.kind is domain.kind and not piece.reads_text:
            for start, end in piece.spans():
                low = end if start <= low < end else low
            for start, end in reversed(piece.spans()):
                high = start if start < high <= end else high
    rest = Domain.of(
        domain.kind,
        low=low,
        high=high,
        excluded=(point for point in domain.excluded if not in_any(point, refused)),
        suffixes=(domain.suffix,),
        contains=domain.contains,
        patterns=domain.patterns,
    )
    # Once an end has moved, the next of the refused may reach it.
    return rest if rest == domain else subtract(rest, refused)


def _outside(kind: Kind, points: Iterable[Scalar], refused: tuple[Domain, ...]) -> Iterator[Scalar]:
    """The points of a kind that lie in none of the refused, which come from `united`."""
    spans = sorted(
        span for piece in refused if piece.kind is kind and not piece.reads_text for span in piece.spans()
    )
    others = [piece for piece in refused if piece.reads_text or piece.kind is None]
    for point in points:
        place = bisect_right(spans, (before(point), ABOVE_ALL))
        if not (place and spans[place - 1][1] >= after(point)) and not in_any(point, others):
            yield point


def join(a: Domain, b: Domain) -> tuple[Domain, bool]:
    """A domain that covers both, and whether it holds nothing else.

    Exact where the union is a domain. Else the smallest interval around both with the suffix,
    `contains`, patterns and excluded points that both have; `exists` across kinds.
    """
    if a.covers(b):
        return a, True
    if b.covers(a):
        return b, True
    if a.kind is None or a.kind is not b.kind:
        return ANY, False
    if a.points is not None and b.points is not None:
        return _finite(a.kind, a.points | b.points), True
    if a.points is not None:
        a, b = b, a
    joined = _hull(a, b)
    return joined, _is_union(joined, a, b)


def _hull(a: Domain, b: Domain) -> Domain:
    """The smallest domain around an infinite one and any other of the same kind."""
    assert a.kind is not None
    if b.points is not None:
        spans, texts = b.spans(), [point for point in b.points if isinstance(point, str)]
        low, high = spans[0][0], spans[-1][1]
        suffix = _common_suffix(a.suffix, *texts)
        contains = frozenset(part for part in a.contains if all(part in text for text in texts))
        patterns = frozenset(p for p in a.patterns if all(search(p, text) for text in texts))
    else:
        low, high = b.low, b.high
        suffix = _common_suffix(a.suffix, b.suffix)
        contains = frozenset(part for part in a.contains if b._implies_contains(part))
        contains |= {part for part in b.contains if a._implies_contains(part)}
        patterns = a.patterns & b.patterns
    ends = {cut[1] for cut in (a.low, a.high, low, high) if cut[0] == 0}
    gaps = {point for point in a.excluded | b.excluded | ends if point not in a and point not in b}
    return Domain.of(
        a.kind,
        low=min(a.low, low),
        high=max(a.high, high),
        excluded=gaps,
        suffixes=(suffix,),
        contains=contains,
        patterns=patterns,
    )


def _is_union(joined: Domain, a: Domain, b: Domain) -> bool:
    """Whether the hull of an infinite domain `a` and `b` has no value outside both."""
    text = (joined.suffix, joined.contains, joined.patterns)
    if text != (a.suffix, a.contains, a.patterns):
        return False
    if b.points is not None:  # the points only fill holes and ends
        return joined.low[:2] == a.low[:2] and joined.high[:2] == a.high[:2]
    if text != (b.suffix, b.contains, b.patterns):
        return False
    # No gap, but perhaps the point between two open ends, which is among the excluded.
    first, second = (a, b) if a.low <= b.low else (b, a)
    return second.low <= first.high or second.low[:2] == first.high[:2]


def _common_suffix(*texts: str) -> str:
    return commonprefix([text[::-1] for text in texts])[::-1]


# ---------------------------------------------------------------- patterns


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Any:
    """A pattern ready to search with; raises `re2.error`."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 1 << 20
    return re2.compile(pattern, options=options)


def search(pattern: str, text: str) -> bool:
    """Whether a pattern is found in `text` (RE2: linear in the length of the text)."""
    return compiled(pattern).search(text) is not None
