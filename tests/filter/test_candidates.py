"""The index of the poset: hundreds of filters against all pairs, and what is asked as they become many."""

import random
import tracemalloc

import pytest

from angelia import EventType, Filter, TypeRegistry
from angelia.filter import subscription_poset
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, after, before
from angelia.filter.spans import Members, Spans, bits_of, numbers_in

REGISTRY = TypeRegistry([EventType("A"), EventType("B", parent="A"), EventType("C", parent="B")])


def texts(rng, size):
    """A part of a filter, of any sort; numbers below `size`."""
    name, low = rng.choice("xyz"), rng.randrange(size)
    high, word = low + rng.randrange(size), f"{rng.randrange(size):b}"
    return rng.choice(
        [
            f"{name} between {low} and {high}",
            f"{name} < {low}",
            f"{name} > {low}",
            f"{name} = {low}",
            f"{name} in ({low}, {high}, {size})",
            f"{name} in ({', '.join(str(low + i) for i in range(9))})",
            f"{name} != {low}",
            f"{name} > {low} and {name} != {high}",
            f"not {name} = {low}",
            f"not {name} between {low} and {high}",
            f"exists {name}",
            f"{name} is number",
            f'{name} prefix "{word}"',
            f'{name} suffix "{word}"',
            f'{name} contains "{word}"',
            f'{name} matches "{word[:2]}"',
            f'{name} = "{word}"',
            f'{name} > "{word}" and {name} != "{word}0"',
        ]
    )


def any_filter(rng, size=12):
    parts = [" and ".join(texts(rng, size) for _ in range(rng.randrange(1, 4)))]
    if rng.random() < 0.1:
        parts.append(texts(rng, size))
    text = " or ".join(parts)
    return Filter.parse(f"{rng.choice('ABCD')}: {text}" if rng.random() < 0.2 else text)


def interval(rng, size=40):
    low, width = rng.randrange(size), rng.randrange(size)
    text = f"x between {low} and {low + width}"
    if rng.random() < 0.5:
        text += f" and y < {rng.randrange(size)}"
    return Filter.parse(f"{rng.choice('ABC')}: {text}" if rng.random() < 0.3 else text)


def one_attribute(rng, size=8):
    return Filter.parse(texts(rng, size).replace("y", "x").replace("z", "x"))


def special(rng, size=7):
    """One attribute with texts, patterns, excluded and refused values, of which many share some."""
    value, other = rng.randrange(size), rng.randrange(size)
    word, end = f"{rng.randrange(4 * size):b}", f"{rng.randrange(size):b}"
    listed = ", ".join(f'"{rng.randrange(4 * size):b}"' for _ in range(rng.randrange(2, 12)))
    parts = [
        f"x != {value}",
        f"x != {value} and x != {other}",
        f"x > {value} and x != {value + 2}",
        f"x in ({value}, {other})",
        f"not x = {value}",
        f"not x in ({value}, {other})",
        f"not x between {value} and {value + other}",
        f'not x = "{word}"',
        f'not x contains "{word}"',
        f'not x suffix "{end}"',
        f'not x prefix "{end}"',
        f'not x matches "{end}"',
        "not exists x",
        f'x != "{word}"',
        f'x suffix "{end}"',
        f'x contains "{word}"',
        f'x contains "{word}" and x contains "{end}1"',
        f'x prefix "{word}" and x suffix "{end}"',
        f'x matches "{end}"',
        f"x in ({listed})",
        f'x = "{word}"',
    ]
    return Filter.parse(" and ".join(rng.sample(parts, rng.choice([1, 1, 2]))))


def check(poset):
    """Every relation of a poset is that of all pairs."""
    items = list(poset)
    above = {f: {g for g in items if g is not f and g.covers(f, REGISTRY)} for f in items}
    for f in items:
        immediate = above[f] - {h for g in above[f] for h in above[g]}
        assert poset.successors(f) == immediate, str(f)
        assert poset.covering(f) == above[f], str(f)
        assert poset.is_root(f) == (not above[f])
    assert sum(len(poset.predecessors(f)) for f in items) == sum(len(poset.successors(f)) for f in items)


@pytest.mark.parametrize("make", [any_filter, interval, one_attribute, special])
@pytest.mark.parametrize("seed", range(3))
def test_a_poset_of_hundreds_is_that_of_all_pairs_also_after_removals(make, seed):
    rng = random.Random(seed)
    poset = subscription_poset(REGISTRY)
    for f in {make(rng): None for _ in range(350)}:
        poset.insert(f)
    check(poset)
    for f in rng.sample(list(poset), len(poset) * 2 // 3):
        poset.remove(f)
    for _ in range(60):
        poset.insert(make(rng))
    check(poset)
    for f in [make(rng) for _ in range(40)]:  # asked from outside
        if f not in poset:
            assert poset.covering(f) == {g for g in poset if g.covers(f, REGISTRY)}
            assert poset.covered_by(f) == {g for g in poset if f.covers(g, REGISTRY)}
    for f in list(poset):
        poset.remove(f)
    assert len(poset) == 0
    assert poset.roots == ()


# ---------------------------------------------------------------- growth


class Counting(Filter):
    """A filter that counts how often it is asked what it covers."""

    __slots__ = ()
    asked = 0

    def covers(self, other, registry=None):
        Counting.asked += 1
        return super().covers(other, registry)


def nested(i, n):
    rng = random.Random(i)
    low, high = sorted((rng.randrange(10 * n), rng.randrange(10 * n)))
    return f"x between {low} and {high}"


def asked(shape, n):
    """How many questions of covering it takes to insert `n` filters and to remove them."""
    poset = subscription_poset()
    Counting.asked = 0
    for i in range(n):
        poset.insert(Counting(Filter.parse(shape(i, n)).conjunctions))
    for item in list(poset):
        poset.remove(item)
    return Counting.asked


SHAPES = {
    "ranges and prefixes": lambda i, n: (
        f'x >= {i * 7919 % 1000} and x < {i * 7919 % 1000 + 10} and h prefix "{i % 10}.r"'
    ),
    "nested ranges": nested,
    "few distinct values": lambda i, n: (
        f"x between {i % 7} and {i % 11 + 7} and y between {i % 13} and {i % 17 + 13}"
    ),
    "a chain upwards": lambda i, n: f"x < {i}",
    "a chain downwards": lambda i, n: f"x < {n - i}",
    "a chain in any order": lambda i, n: f"x < {i * 7919 % n}",
    "intervals around each other": lambda i, n: f"x > {i * 7919 % n} and x < {2 * n - i * 7919 % n}",
    "incomparable intervals": lambda i, n: f"x > {i} and x < {n + i}",
    "incomparable on two attributes": lambda i, n: f"x < {i} and y < {n - i}",
    "all equal": lambda i, n: "x < 1 and y < 2",
    "equalities": lambda i, n: f"x = {i // 20} and y = {i % 20}",
    "lists of values": lambda i, n: f"x in ({i}, {i + 1}, {i + 2})",
    "unequal values": lambda i, n: f"x != {i}",
    "two unequal values": lambda i, n: f"x != -1 and x != {i}",
    "unequal values in an interval": lambda i, n: f"x > -1 and x < {n} and x != {i}",
    "refused values": lambda i, n: f"not x = {i}",
    "refused intervals": lambda i, n: f"not x between {i} and {i + n}",
    "unequal and refused values": lambda i, n: f"x != {i} and not x = {n + i}",
    "parts": lambda i, n: f'x contains "{i:06}"',
    "parts with much in common": lambda i, n: f'x contains "{"ab" * 30}{i:06}{"cd" * 30}"',
    "parts of two attributes": lambda i, n: f'x contains "{i % 20:06}" and y contains "{i // 20:06}"',
    "suffixes": lambda i, n: f'x suffix "{i:06}"',
    "patterns": lambda i, n: f'x matches "^{i:06}[a-f]"',
    "refused parts": lambda i, n: f'not x contains "{i:06}"',
    "refused suffixes": lambda i, n: f'not x suffix "{i:06}"',
    "refused patterns": lambda i, n: f'not x matches "{i:06}"',
    "two alternatives": lambda i, n: f"x = {i} or y = {i}",
    "alternatives of which all share one": lambda i, n: f"x = -1 or y = {i}",
    "alternatives that are intervals": lambda i, n: f"x > {i} and x < {n + i} or y > {i} and y < {n + i}",
    "alternatives with unequal values": lambda i, n: f"x != {i} or y != {i}",
    "alternatives with parts": lambda i, n: f'x contains "{i:06}" or y contains "{i:06}"',
    "alternatives with types": lambda i, n: f"(T{i}: x > 1) or (U{i}: x > 1)",
    "many alternatives": lambda i, n: " or ".join(f"x = {i * 8 + j}" for j in range(8)),
    "types": lambda i, n: f"T{i}:",
    "types with ranges": lambda i, n: f"T{i % 20}: x > {i} and x < {n + i}",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_filters_take_about_twice_the_questions(shape):
    half, whole = asked(SHAPES[shape], 400), asked(SHAPES[shape], 800)
    assert whole <= 60 * 800
    assert whole <= 3 * half + 800


def two_layers(n):
    """`n` filters, and `n` others of which each covers each of them."""
    lower = [Filter.parse(f"x > {i} and x < {10 * n + i}") for i in range(n)]
    return lower, [Filter.parse(f"x > {i - 2 * n} and x < {12 * n + i}") for i in range(n)]


def memory_of_layers(n):
    lower, upper = two_layers(n)
    tracemalloc.start()
    poset = subscription_poset()
    for item in (*lower, *upper):
        poset.insert(item)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert poset.predecessors(upper[0]) == set(lower)
    assert poset.successors(lower[0]) == set(upper)
    return used


def test_two_layers_in_which_each_covers_each_take_no_more_room_than_others():
    assert memory_of_layers(800) < 2.5 * memory_of_layers(400)


@pytest.mark.parametrize("together", [False, True])
def test_a_layer_is_uncovered_when_the_last_above_it_goes_and_that_takes_few_questions(together):
    n = 200
    lower, upper = two_layers(n)
    poset = subscription_poset()
    Counting.asked = 0
    for item in (*lower, *upper):
        poset.insert(Counting(item.conjunctions))
    if together:
        assert poset.remove_all(upper) == set(lower)
    else:
        for item in upper[:-1]:
            already = Counting.asked
            assert poset.remove(item) == set()
            assert Counting.asked <= already + n + 40
        assert poset.remove(upper[-1]) == set(lower)
    assert Counting.asked < 40 * 2 * n + (0 if together else n * n)
    check(poset)


def test_random_filters_are_asked_few_questions_each():
    rng = random.Random(3)
    few = [any_filter(rng, 40) for _ in range(1500)]
    counts = []
    for n in (500, 1500):
        poset, Counting.asked = subscription_poset(), 0
        for item in few[:n]:
            poset.insert(Counting(item.conjunctions))
        counts.append(Counting.asked / n)
    assert counts[1] < 30
    assert counts[1] < 1.8 * counts[0]


# ---------------------------------------------------------------- sets and intervals


def test_bits_and_numbers_are_the_same_sets():
    rng = random.Random(1)
    for size in (0, 1, 2, 3, 7, 8, 9, 500):
        numbers = set(rng.sample(range(2000), size))
        assert set(numbers_in(bits_of(numbers))) == numbers
        assert numbers_in(bits_of(numbers)) == sorted(numbers)


def test_members_are_a_set_however_many_come_and_go():
    rng, members, twin = random.Random(2), Members(), set()
    for _ in range(2000):
        number = rng.randrange(200)
        (members.remove if number in twin else members.add)(number)
        twin ^= {number}
        if rng.random() < 0.1:
            assert numbers_in(members.bits) == sorted(twin)
            assert len(members) == len(twin)


@pytest.mark.parametrize("values", [5, 5000])
def test_intervals_are_found_as_by_comparing_each(values):
    rng, spans, twin = random.Random(values), Spans(), {}
    for step in range(4000):
        number = rng.randrange(2500)
        if number in twin:
            spans.remove(number, twin.pop(number))
        else:
            twin[number] = random_span(rng, values)
            spans.add(number, twin[number])
        if step % 40 == 0:
            low, high = random_span(rng, values)
            within = [n for n, (a, b) in twin.items() if a >= low and b <= high]
            around = [n for n, (a, b) in twin.items() if a <= low and b >= high]
            assert numbers_in(spans.within(low, high)) == sorted(within)
            assert numbers_in(spans.around(low, high)) == sorted(around)
            assert len(spans) == len(twin)


def random_span(rng, values):
    cuts = [BELOW_ALL, ABOVE_ALL, *(rng.choice([before, after])(rng.randrange(values)) for _ in range(4))]
    return tuple(sorted(rng.sample(cuts, 2)))
