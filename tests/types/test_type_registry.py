"""Adding, changing and removing types, and what the registry knows of their inheritance."""

import pytest

from angelia.errors import EventTypeError, UnknownTypeError
from angelia.event import MAX_ATTRIBUTES
from angelia.types import EventType, TypeRegistry
from angelia.types.registry import MAX_ANCESTORS

EVENT = EventType("Event", {"at": "timestamp?"})
QUOTE = EventType("Quote", {"price": "float", "seats": "integer"}, parent="Event")
SALE = EventType("Sale", {"discount": "float"}, parent="Quote")
LOG = EventType("Log", {"line": "string"})


@pytest.fixture
def registry():
    return TypeRegistry([EVENT, QUOTE, SALE, LOG])


def evolved(event_type, **attributes):
    """`event_type` with some attributes added, changed, or (`None`) removed."""
    merged = {**event_type.attributes, **attributes}
    kept = {name: attribute for name, attribute in merged.items() if attribute is not None}
    return EventType(event_type.name, kept, event_type.parent, event_type.owner, doc=event_type.doc)


# ---------------------------------------------------------------- inheritance


def test_a_subtype_has_the_attributes_of_all_its_ancestors(registry):
    assert list(registry.attributes("Sale")) == ["at", "price", "seats", "discount"]
    assert list(registry.attributes("Log")) == ["line"]
    with pytest.raises(TypeError):
        registry.attributes("Sale")["new"] = None


def test_ancestors_are_nearest_first_and_descendants_transitive(registry):
    assert registry.ancestors("Sale") == ("Quote", "Event")
    assert registry.ancestors("Event") == ()
    assert registry.descendants("Event") == {"Quote", "Sale"}
    assert registry.descendants("Sale") == frozenset()


def test_independent_roots_are_allowed(registry):
    assert registry.roots() == ("Event", "Log")


def test_subtyping_is_reflexive_transitive_and_one_way(registry):
    assert registry.is_subtype("Sale", "Sale")
    assert registry.is_subtype("Sale", "Event")
    assert not registry.is_subtype("Event", "Sale")
    assert not registry.is_subtype("Log", "Event")


def test_an_unregistered_type_is_only_its_own_subtype(registry):
    assert registry.is_subtype("Nothing", "Nothing")
    assert not registry.is_subtype("Nothing", "Event")
    assert not registry.is_subtype("Sale", "Nothing")


@pytest.mark.parametrize(
    ("own", "inherited"),
    [("integer", "float"), ("string", "string?"), ("integer", "float?"), ("float", "float")],
)
def test_a_subtype_may_narrow_an_attribute(own, inherited):
    registry = TypeRegistry([EventType("A", {"x": inherited}), EventType("B", {"x": own}, parent="A")])
    assert str(registry.attributes("B")["x"]) == own


@pytest.mark.parametrize(
    ("own", "inherited"),
    [("float", "integer"), ("string?", "string"), ("string", "float"), ("string[]", "string")],
)
def test_a_subtype_may_not_redefine_an_attribute_with_an_incompatible_type(own, inherited):
    registry = TypeRegistry([EventType("A", {"x": inherited}), EventType("B", parent="A")])
    with pytest.raises(EventTypeError, match=r"C redefines the attribute 'x'.*only a narrower one"):
        registry.add(EventType("C", {"x": own}, parent="B"))
    assert "C" not in registry


def test_limits_and_name_clashes_count_inherited_attributes():
    registry = TypeRegistry([EventType("A", {f"a{i}": "string?" for i in range(MAX_ATTRIBUTES)})])
    with pytest.raises(EventTypeError, match="at most 256"):
        registry.add(EventType("B", {"b": "string"}, parent="A"))
    with pytest.raises(EventTypeError, match=r"'line' has a value and cannot also contain 'line\.number'"):
        TypeRegistry([LOG]).add(EventType("B", {"line.number": "integer"}, parent="Log"))


def test_the_length_of_a_line_of_ancestors_is_limited():
    registry = TypeRegistry([EventType("T0")])
    for i in range(MAX_ANCESTORS):
        registry.add(EventType(f"T{i + 1}", parent=f"T{i}"))
    with pytest.raises(EventTypeError, match="more than 256 ancestors"):
        registry.add(EventType("Last", parent=f"T{MAX_ANCESTORS}"))


# ---------------------------------------------------------------- add, get, iterate


def test_a_parent_must_be_registered_first():
    with pytest.raises(UnknownTypeError, match=r"Quote has a parent that is not registered.*'Event'"):
        TypeRegistry([QUOTE])


def test_an_unknown_type_is_answered_with_what_may_have_been_meant(registry):
    with pytest.raises(UnknownTypeError, match="unknown event type 'Quotes'; did you mean 'Quote'"):
        registry.get("Quotes")
    for ask in (
        registry.attributes,
        registry.ancestors,
        registry.descendants,
        registry.users,
        registry.remove,
    ):
        with pytest.raises(UnknownTypeError):
            ask("Nothing")


def test_adding_an_equal_definition_again_changes_nothing(registry):
    version = registry.version
    assert registry.add(EventType("Quote", {"seats": "integer", "price": "float"}, parent="Event")) == QUOTE
    registry.modify(evolved(QUOTE, note="string?"))
    assert registry.add(evolved(QUOTE, note="string?")).version == 2
    assert registry.version == version + 1


def test_adding_another_definition_of_a_name_is_refused(registry):
    with pytest.raises(EventTypeError, match=r"Quote is registered with another definition; use modify\(\)"):
        registry.add(EventType("Quote", {"price": "float"}))
    assert registry.get("Quote") == QUOTE


def test_names_come_parents_before_children_and_in_stable_order(registry):
    assert list(registry) == ["Event", "Quote", "Sale", "Log"]
    registry.modify(evolved(EVENT, note="string?"))
    assert list(registry) == ["Event", "Quote", "Sale", "Log"]
    assert TypeRegistry(map(registry.get, registry)).attributes("Sale") == registry.attributes("Sale")
    assert len(registry) == 4
    assert "Sale" in registry
    assert "Nothing" not in registry


def test_the_version_of_the_registry_grows_with_each_change_and_no_other_call(registry):
    seen = [registry.version]
    for change in (
        lambda: registry.add(EventType("New")),
        lambda: registry.modify(EventType("New", doc="better")),
        lambda: registry.remove("New"),
    ):
        change()
        seen.append(registry.version)
    assert sorted(set(seen)) == seen
    registry.use("Quote", "s1")
    registry.modify(QUOTE)
    assert registry.version == seen[-1]


# ---------------------------------------------------------------- modify


@pytest.mark.parametrize(
    "changes",
    [{"note": "string?"}, {"seats": "float"}, {"price": "float?"}, {"seats": "float?", "tags": "string[]?"}],
)
def test_compatible_changes_give_the_next_version(registry, changes):
    changed = registry.modify(evolved(QUOTE, **changes))
    assert changed.version == 2
    assert registry.get("Quote") == changed
    for name, text in changes.items():
        assert str(registry.attributes("Quote")[name]) == text
        assert str(registry.attributes("Sale")[name]) == text, "a descendant has the change as well"


def test_the_doc_of_a_type_and_of_an_attribute_may_change(registry):
    changed = registry.modify(EventType("Log", LOG.attributes, doc="a line of a log"))
    assert (changed.version, changed.doc) == (2, "a line of a log")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"price": None}, "'price' is removed"),
        ({"price": "integer"}, "'price' changes from float to integer"),
        ({"price": "string"}, "'price' changes from float to string"),
        ({"price": "float[]"}, r"'price' changes from float to float\[\]"),
        ({"note": "string"}, "the new attribute 'note' is required"),
    ],
)
def test_a_change_that_would_invalidate_events_is_refused(registry, changes, complaint):
    with pytest.raises(EventTypeError, match=f"Quote: .*{complaint}; allowed are new optional attributes"):
        registry.modify(evolved(QUOTE, **changes))
    assert registry.get("Quote") == QUOTE


def test_making_an_optional_attribute_required_is_refused(registry):
    with pytest.raises(EventTypeError, match="'at' changes from timestamp\\? to timestamp"):
        registry.modify(evolved(EVENT, at="timestamp"))


def test_narrowing_an_inherited_attribute_later_is_refused(registry):
    registry.modify(evolved(QUOTE, rate="float?"))
    with pytest.raises(EventTypeError, match="'rate' changes from float\\? to integer\\?"):
        registry.modify(evolved(SALE, rate="integer?"))


def test_changing_the_parent_is_refused(registry):
    with pytest.raises(EventTypeError, match="the parent of Sale changes from Quote to Event"):
        registry.modify(EventType("Sale", SALE.attributes, parent="Event"))


def test_modifying_an_unknown_type_is_refused(registry):
    with pytest.raises(UnknownTypeError):
        registry.modify(EventType("Nothing"))


@pytest.mark.parametrize("clash", [{"discount": "string?"}, {"discount.reason": "string?"}])
def test_a_change_that_clashes_with_a_descendant_is_refused_and_leaves_no_trace(registry, clash):
    before = dict(registry.attributes("Quote")), registry.version
    with pytest.raises(EventTypeError, match="Event cannot change so, because of a subtype: Sale"):
        registry.modify(evolved(EVENT, **clash))
    assert (dict(registry.attributes("Quote")), registry.version) == before
    assert registry.get("Event") == EVENT


def test_a_change_that_puts_a_descendant_above_the_limit_is_refused():
    full = {f"b{i}": "string?" for i in range(MAX_ATTRIBUTES)}
    registry = TypeRegistry([EventType("A"), EventType("B", full, parent="A")])
    with pytest.raises(EventTypeError, match="B has 257 attributes"):
        registry.modify(EventType("A", {"a": "string?"}))


def test_an_attribute_that_a_descendant_has_narrower_may_be_added(registry):
    registry.modify(evolved(EVENT, discount="float?"))
    assert str(registry.attributes("Quote")["discount"]) == "float?"
    assert str(registry.attributes("Sale")["discount"]) == "float"


def test_widening_beyond_an_ancestor_is_refused(registry):
    registry.add(EventType("Cheap", {"seats": "integer"}, parent="Quote"))
    with pytest.raises(EventTypeError, match="redefines the attribute 'seats' as float"):
        registry.modify(EventType("Cheap", {"seats": "float"}, parent="Quote"))


# ---------------------------------------------------------------- remove


def test_remove_is_refused_while_a_type_has_children(registry):
    with pytest.raises(EventTypeError, match="Quote has subtypes: Sale; remove them first"):
        registry.remove("Quote")
    registry.remove("Sale")
    registry.remove("Quote")
    assert list(registry) == ["Event", "Log"]
    assert registry.descendants("Event") == frozenset()


def test_remove_is_refused_while_a_type_has_users(registry):
    registry.use("Log", ("subscription", 7))
    registry.use("Log", "alice")
    registry.use("Log", "alice")
    assert registry.users("Log") == {("subscription", 7), "alice"}
    with pytest.raises(EventTypeError, match=r"Log is in use by \('subscription', 7\), alice"):
        registry.remove("Log")
    registry.release("Log", "alice")
    registry.release("Log", ("subscription", 7))
    registry.release("Log", "nobody")
    registry.remove("Log")
    assert "Log" not in registry


def test_a_message_names_a_few_users_of_many(registry):
    for user in range(100):
        registry.use("Log", user)
    with pytest.raises(EventTypeError, match="and 95 more"):
        registry.remove("Log")


def test_a_removed_name_can_be_defined_anew(registry):
    registry.remove("Log")
    assert registry.add(EventType("Log", {"text": "string"}, parent="Event")).version == 3, (
        "above its removal"
    )
    assert registry.is_subtype("Log", "Event")


# ---------------------------------------------------------------- owner


@pytest.fixture
def owned():
    return TypeRegistry([EventType("T", {"a": "string"}, owner="alice")])


@pytest.mark.parametrize("by", [None, "bob"])
def test_only_the_owner_may_change_or_remove_a_type(owned, by):
    wider = EventType("T", {"a": "string?"})
    for change in (owned.modify, owned.add):
        with pytest.raises(EventTypeError, match="T belongs to 'alice': only its owner"):
            change(wider, by=by)
    with pytest.raises(EventTypeError, match="T belongs to 'alice': only its owner"):
        owned.remove("T", by=by)
    assert owned.modify(wider, by="alice").owner == "alice", "no owner in a definition keeps the owner"
    owned.remove("T", by="alice")


def test_anybody_may_add_an_equal_definition_again(owned):
    assert owned.add(EventType("T", {"a": "string"}), by="bob").owner == "alice"


def test_who_adds_a_type_without_an_owner_owns_it():
    registry = TypeRegistry()
    assert registry.add(EventType("T"), by="alice").owner == "alice"
    assert registry.add(EventType("U")).owner is None


def test_the_owner_may_hand_a_type_over_and_nobody_may_claim_one(owned):
    handed = owned.modify(EventType("T", {"a": "string"}, owner="bob"), by="alice")
    assert (handed.owner, handed.version) == ("bob", 2)
    with pytest.raises(EventTypeError):
        owned.remove("T", by="alice")
    free = TypeRegistry([EventType("T")])
    with pytest.raises(EventTypeError, match="no owner, and 'mallory' may not claim it"):
        free.modify(EventType("T", owner="mallory"), by="mallory")
