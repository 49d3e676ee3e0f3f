"""The filter dialects: each says what the specification says, and routes by as much of it as can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.http.helpers import cloudevent

from angelia import Event, Filter, TypeRegistry
from angelia.broker.http.codec import structured_event
from angelia.broker.http.dialects import Dialects, Selection
from angelia.broker.http.mapping import facts_of, text_of
from angelia.broker.http.problem import Problem

REGISTRY = TypeRegistry()


def select(*filters, **more):
    return Dialects(REGISTRY).select({"filters": list(filters), **more})


def select_if_possible(given):
    """What is asked for; nothing, if it is refused since no event can match."""
    try:
        return select(given)
    except Problem as problem:
        if "no event can match" in problem.detail:
            return Selection(Filter.parse("false"))
        raise


def wants(selection, event):
    return selection.filter.matches(event, REGISTRY) and selection.accepts(event)


def event(**changes):
    return structured_event(cloudevent(**changes), REGISTRY)


GITHUB = event(
    type="com.github.push",
    source="https://github.com/cloudevents",
    subject="spec",
    time="2026-01-01T00:00:00Z",
    sequence=15,
    urgent=True,
    region="eu-west",
)

MATCHING = [
    {"exact": {"type": "com.github.push"}},
    {"exact": {"type": "com.github.push", "subject": "spec"}},
    {"exact": {"sequence": "15"}},
    {"exact": {"urgent": "true"}},
    {"exact": {"specversion": "1.0"}},
    {"exact": {"time": "2026-01-01T00:00:00Z"}},
    {"exact": {"datacontenttype": "application/json"}},
    {"prefix": {"type": "com.github."}},
    {"prefix": {"sequence": "1"}},
    {"prefix": {"urgent": "tr"}},
    {"prefix": {"time": "2026-01-01T"}},
    {"prefix": {"specversion": "1."}},
    {"suffix": {"type": ".push", "source": "/cloudevents"}},
    {"suffix": {"region": "west"}},
    {"suffix": {"sequence": "5"}},
    {"suffix": {"datacontenttype": "json"}},
    {"all": [{"exact": {"subject": "spec"}}, {"prefix": {"sequence": "1"}}]},
    {"any": [{"exact": {"subject": "no"}}, {"suffix": {"sequence": "5"}}]},
    {"any": [{"exact": {"subject": "spec"}}, {"suffix": {"sequence": "9"}}]},
    {"not": {"exact": {"subject": "no"}}},
    {"not": {"prefix": {"sequence": "9"}}},
    {"not": {"exact": {"missing": "x"}}},
    {"not": {"not": {"exact": {"urgent": "true"}}}},
    {"sql": "source LIKE '%cloudevents' AND sequence > 14"},
    {"sql": "EXISTS region AND NOT EXISTS colour"},
    {"sql": "urgent"},
    {"any": [{"exact": {"subject": "no"}}, {"sql": "type = 'com.github.push'"}]},
    {"not": {"sql": "sequence = 16"}},
    {"angelia": "com.github.push: x = 1"},
    {"angelia": 'ce-region prefix "eu"'},
]
NOT_MATCHING = [
    {"exact": {"type": "com.github"}},
    {"exact": {"type": "com.github.push", "subject": "no"}},
    {"exact": {"sequence": "015"}},
    {"exact": {"urgent": "True"}},
    {"exact": {"missing": "x"}},
    {"exact": {"x": "1"}},  # data are not attributes of the context
    {"exact": {"time": "2026-01-01"}},
    {"prefix": {"type": "COM"}},
    {"prefix": {"sequence": "5"}},
    {"suffix": {"urgent": "x"}},
    {"prefix": {"datacontenttype": "text/"}},
    {"all": [{"exact": {"subject": "spec"}}, {"prefix": {"sequence": "2"}}]},
    {"any": [{"exact": {"subject": "no"}}, {"suffix": {"sequence": "9"}}]},
    {"not": {"prefix": {"sequence": "1"}}},
    {"not": {"any": [{"exact": {"subject": "spec"}}, {"prefix": {"sequence": "9"}}]}},
    {"sql": "sequence > 15"},
    {"sql": "colour = 'red'"},
    {"sql": "sequence / 0 = 1"},
    {"not": {"sql": "urgent"}},
    {"all": [{"sql": "urgent"}, {"exact": {"subject": "no"}}]},
    {"angelia": "x > 1"},
]


@pytest.mark.parametrize("given", MATCHING, ids=str)
def test_a_filter_that_matches(given):
    assert wants(select(given), GITHUB)


@pytest.mark.parametrize("given", NOT_MATCHING, ids=str)
def test_a_filter_that_does_not_match(given):
    assert not wants(select_if_possible(given), GITHUB)


def test_all_filters_the_source_and_one_of_the_types_must_match():
    assert wants(select({"exact": {"subject": "spec"}}, {"prefix": {"region": "eu"}}), GITHUB)
    assert not wants(select({"exact": {"subject": "spec"}}, {"prefix": {"region": "us"}}), GITHUB)
    assert wants(select(source="https://github.com/cloudevents", types=["a", "com.github.push"]), GITHUB)
    assert not wants(select(types=["a", "com.github"]), GITHUB)
    assert not wants(select(source="/other"), GITHUB)
    assert wants(Dialects(REGISTRY).select({}), GITHUB)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"exact": {"type": "t"}}, '@type = "t"'),
        ({"prefix": {"source": "/a", "subject": "b"}}, '@source prefix "/a" and @subject prefix "b"'),
        ({"exact": {"ext": "x"}}, 'ce-ext = "x"'),
        ({"exact": {"ext": "7"}}, 'ce-ext = "7" or ce-ext = 7'),
        ({"not": {"exact": {"type": "t"}}}, 'not @type = "t"'),
        ({"any": [{"exact": {"id": "1"}}, {"suffix": {"type": "x"}}]}, '@id = "1" or @type suffix "x"'),
        ({"angelia": "a < 1"}, "a < 1"),
    ],
)
def test_what_a_filter_can_say_needs_no_test(given, text):
    selection = select(given)
    assert selection.test is None
    assert selection.filter == Filter.parse(text)


BAD = [
    ({"exact": {}}, "filters[0].exact"),
    ({"exact": {"type": ""}}, "filters[0].exact"),
    ({"exact": {"": "x"}}, "filters[0].exact"),
    ({"exact": {"type": 1}}, "filters[0].exact"),
    ({"exact": "x"}, "filters[0].exact"),
    ({"all": []}, "filters[0].all"),
    ({"any": {}}, "filters[0].any"),
    ({"not": []}, "filters[0].not"),
    ({"all": [{"exact": {"type": "t"}}, {"nope": 1}]}, "filters[0].all[1]"),
    ({"jq": "."}, "filters[0]"),
    ({}, "filters[0]"),
    ({"exact": {"a": "b"}, "prefix": {"a": "b"}}, "filters[0]"),
    ("x", "filters[0]"),
    ({"angelia": "x <"}, "filters[0].angelia"),
    ({"angelia": 1}, "filters[0].angelia"),
    ({"sql": 1}, "filters[0].sql"),
    ({"sql": "type ="}, "filters[0].sql"),
    ({"sql": "NOSUCH(type)"}, "filters[0].sql"),
    ({"exact": {"specversion": "0.3"}}, "filters"),
]


@pytest.mark.parametrize(("given", "where"), BAD, ids=str)
def test_a_bad_filter_is_told_by_its_place(given, where):
    with pytest.raises(Problem) as caught:
        select(given)
    assert caught.value.status == 400
    assert caught.value.members["attribute"] == where


def test_filters_are_neither_too_deep_nor_too_many():
    deep = {"exact": {"type": "t"}}
    for _ in range(20):
        deep = {"not": deep}
    with pytest.raises(Problem, match="nested"):
        select(deep)
    with pytest.raises(Problem, match="at most"):
        select({"any": [{"exact": {"type": f"t{number}"}} for number in range(300)]})


def test_an_sql_expression_routes_by_the_filter_that_it_implies():
    selection = select({"sql": "type = 't' AND region = 'eu' AND sequence > 5"})
    assert selection.test is not None
    assert Filter.parse('@type = "t" and ce-region = "eu"').covers(selection.filter)


def test_extensions_that_programs_publish_are_seen_though_no_cloudevent_could_carry_them():
    large = Event({"ce-sequence": 2**40, "ce-note": "two\nlines"}, type="t", source="/s")
    assert wants(select({"sql": "EXISTS sequence"}), large)
    assert wants(select({"suffix": {"note": "lines"}}), large)
    assert wants(select({"exact": {"sequence": str(2**40)}}), large) is False  # beyond what is compared


def test_what_is_too_much_for_a_filter_is_tested_at_the_door():
    pairs = [{"any": [{"exact": {f"a{n}": "1x"}}, {"exact": {f"b{n}": "1x"}}]} for n in range(10)]
    selection = select({"all": pairs})
    all_of_them = event(**{f"a{number}": "1x" for number in range(10)})
    assert wants(selection, all_of_them)
    assert not wants(selection, event(**{f"a{number}": "1x" for number in range(9)}))
    assert wants(select({"not": {"all": [*pairs, {"exact": {"type": "other"}}]}}), all_of_them)
    many = [{"exact": {"subject": f"{number}" + "x" * 1000}} for number in range(100)]
    assert wants(select({"any": many}), event(subject="7" + "x" * 1000))


def test_an_event_without_a_type_has_none_to_compare():
    assert not wants(select({"prefix": {"type": "angelia"}}), Event({"x": 1}))


# ------------------------------------------------ against a plain reading of the specification

NAMES = st.sampled_from(["type", "source", "subject", "id", "time", "ext", "num", "flag", "datacontenttype"])
TEXTS = st.sampled_from(["a", "ab", "b", "1", "12", "true", "t", "2026", "application/json", "Z", "-1"])
LEAVES = st.builds(
    lambda dialect, pairs: {dialect: pairs},
    st.sampled_from(["exact", "prefix", "suffix"]),
    st.dictionaries(NAMES, TEXTS, min_size=1, max_size=2),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"all": parts})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"any": parts})
        | inner.map(lambda part: {"not": part})
    ),
    max_leaves=6,
)
EVENTS = st.builds(
    lambda **changes: event(**changes),
    type=TEXTS.filter(lambda text: text != "Z"),
    source=st.sampled_from(["a", "ab", "b"]),
    subject=st.none() | TEXTS,
    time=st.sampled_from(["2026-01-01T00:00:00Z", "1212-01-01T00:00:00.12Z"]),
    ext=st.none() | TEXTS,
    num=st.sampled_from([1, 12, -1, 121]),
    flag=st.none() | st.booleans(),
    data=st.sampled_from([{"x": 1}, None]),
)
COMPARE = {"exact": str.__eq__, "prefix": str.startswith, "suffix": str.endswith}


def plainly(expression, facts):
    ((dialect, value),) = expression.items()
    if dialect == "all":
        return all(plainly(part, facts) for part in value)
    if dialect == "any":
        return any(plainly(part, facts) for part in value)
    if dialect == "not":
        return not plainly(value, facts)
    return all(name in facts and COMPARE[dialect](text_of(facts[name]), text) for name, text in value.items())


@given(FILTERS, EVENTS)
@settings(max_examples=300, deadline=None)
def test_dialects_mean_what_a_plain_reading_says(expression, one):
    expected = plainly(expression, facts_of(one))
    assert wants(select_if_possible(expression), one) == expected
