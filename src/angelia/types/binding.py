"""Python classes as event types and back (Hermes thesis, 3.2.4 and 4.4.2).

`@event_type` makes a class a frozen dataclass with keyword arguments and derives its `EventType` from the
annotations; class inheritance is type inheritance. Instances publish as events and arrive as instances.
Hermes could not make classes of types, for want of classes made at run time; `class_of` can.

A field is an attribute of the same name, unless its metadata name another:
`unit_price: float = field(metadata={"name": "unit-price", "doc": "in euro"})`. A field that is itself a
frozen dataclass stands for nested attributes: `order: Order` has `order.total`.
"""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)
from weakref import WeakValueDictionary

from msgspec.structs import replace

from angelia.errors import ConformanceError, EventTypeError
from angelia.event import MAX_DEPTH, Datatype, Event, Value
from angelia.types.conformance import problems, value_problem
from angelia.types.model import Attribute, EventType, inherit

if TYPE_CHECKING:
    from angelia.types.registry import TypeRegistry

__all__ = ["class_of", "event_classes", "event_type", "from_event", "to_event", "type_of"]

T = TypeVar("T")

_DATATYPES: dict[Any, Datatype] = {
    str: Datatype.STRING,
    int: Datatype.INTEGER,
    float: Datatype.FLOAT,
    bool: Datatype.BOOLEAN,
    datetime: Datatype.TIMESTAMP,
}
_CLASSES = {datatype: cls for cls, datatype in _DATATYPES.items()}
_ALLOWED = (
    "use str, int, float, bool or datetime, a list, tuple[…, ...] or Sequence of one of these, "
    "or a frozen dataclass; and `| None` for an optional one"
)


class _Field(NamedTuple):
    """A field of a class: an attribute, or (`attribute` is `None`) the object `cls` of nested `fields`."""

    identifier: str
    name: str
    optional: bool
    attribute: Attribute | None
    cls: type[Any]
    fields: tuple[_Field, ...] = ()


class _Binding(NamedTuple):
    """What a class made with `@event_type` stands for; `attributes` include the inherited ones."""

    event_type: EventType
    attributes: Mapping[str, Attribute]
    fields: tuple[_Field, ...]


# ---------------------------------------------------------------- class -> event type


@overload
def event_type(cls: type[T], /) -> type[T]: ...
@overload
def event_type(name: str | None = None, /, *, owner: str | None = None) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def event_type(name: Any = None, /, *, owner: str | None = None) -> Any:
    """Make a class an event type: `@event_type("flights.Quote")`, or by its own name `@event_type`."""
    if isinstance(name, type):
        return _bind(name, EventType(name.__name__))

    def decorate(cls: type[T]) -> type[T]:
        return _bind(cls, EventType(name or cls.__name__, owner=owner))

    return decorate


def type_of(cls: type[Any]) -> EventType:
    """The event type of a class made with `@event_type`."""
    return _binding(cls).event_type


def event_classes(cls: type[Any]) -> tuple[type[Any], ...]:
    """The classes made with `@event_type` that `cls` is, or derives from: the root first, `cls` last."""
    _binding(cls)
    return tuple([each for each in reversed(cls.__mro__) if "__angelia__" in vars(each)])


def _binding(cls: type[Any]) -> _Binding:
    if not isinstance(cls, type):
        raise EventTypeError(f"an event type is an EventType or an event class, not {type(cls).__name__}")
    binding = vars(cls).get("__angelia__")
    if not isinstance(binding, _Binding):
        raise EventTypeError(f"{cls.__name__} is not an event type; decorate it with @event_type")
    return binding


def _bind(cls: type[T], head: EventType) -> type[T]:
    """Make `cls` a dataclass that stands for a type with the name, owner, version and doc of `head`."""
    doc = head.doc or inspect.cleandoc(vars(cls).get("__doc__") or "")
    own_names = inspect.get_annotations(cls).keys()
    parent = _parent_binding(cls)
    if parent is None or "__post_init__" in vars(cls):
        _keep_lists_as_tuples(cls)
    bound = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = _fields(cls, 1)
    inherited_names = {each.identifier for each in parent.fields} if parent else set()
    own = [each for each in fields if each.identifier in own_names or each.identifier not in inherited_names]
    parent_name = parent.event_type.name if parent else None
    event_type = replace(head, attributes=dict(_leaves(own)), parent=parent_name, doc=doc)
    attributes = inherit(event_type, parent.attributes if parent else {})
    _check_each_attribute_has_one_field(cls, attributes, fields)
    cls.__angelia__ = _Binding(event_type, attributes, fields)  # type: ignore[attr-defined]
    return bound


def _parent_binding(cls: type[Any]) -> _Binding | None:
    parents = [base.__angelia__ for base in cls.__bases__ if hasattr(base, "__angelia__")]
    if len(parents) > 1:
        raise EventTypeError(f"{cls.__name__} has {len(parents)} parents; an event type has one at most")
    return parents[0] if parents else None


def _keep_lists_as_tuples(cls: type[Any]) -> None:
    """Make instances immutable and hashable throughout, whatever list they are made with."""
    after_init: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)

    def freeze(self: Any) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        if after_init is not None:
            after_init(self)

    cls.__post_init__ = freeze


def _check_each_attribute_has_one_field(
    cls: type[Any], attributes: Mapping[str, Attribute], fields: Sequence[_Field]
) -> None:
    counts = Counter(name for name, _ in _leaves(fields))
    for name in attributes:
        if counts[name] == 0:
            raise EventTypeError(f"{cls.__name__} hides the inherited attribute {name!r}; rename its field")
        if counts[name] > 1:
            raise EventTypeError(f"{cls.__name__} has {counts[name]} fields for the attribute {name!r}")


def _leaves(
    fields: Sequence[_Field], prefix: str = "", optional: bool = False
) -> Iterator[tuple[str, Attribute]]:
    """The attributes that fields stand for; those in an optional object are optional."""
    for each in fields:
        below = optional or each.optional
        if each.attribute is None:
            yield from _leaves(each.fields, f"{prefix}{each.name}.", below)
        else:
            yield prefix + each.name, replace(each.attribute, optional=below)


# ---------------------------------------------------------------- annotations


def _fields(cls: type[Any], depth: int) -> tuple[_Field, ...]:
    if depth > MAX_DEPTH:
        raise EventTypeError(f"{cls.__name__} is nested deeper than {MAX_DEPTH} levels")
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise EventTypeError(f"{cls.__name__}: cannot resolve an annotation: {error}") from None
    return tuple([_field(cls, each, hints[each.name], depth) for each in dataclasses.fields(cls)])


def _field(owner: type[Any], field: dataclasses.Field[Any], hint: Any, depth: int) -> _Field:
    where = f"{owner.__name__}.{field.name}"
    if not field.init:
        raise EventTypeError(f"{where}: a field with init=False cannot arrive with an event")
    name, doc = field.metadata.get("name", field.name), field.metadata.get("doc", "")
    inner, optional = _without_none(hint)
    element, repeated = _element(inner)
    if element in _DATATYPES:
        attribute = Attribute(_DATATYPES[element], optional, repeated, doc)
        return _Field(field.name, name, optional, attribute, element)
    if repeated or not _is_frozen_dataclass(element):
        raise EventTypeError(f"{where}: an attribute cannot be {hint}; {_ALLOWED}")
    return _Field(field.name, name, optional, None, element, _fields(element, depth + 1))


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        inner = [each for each in get_args(hint) if each is not NoneType]
        if len(inner) == 1:
            return inner[0], True
    return hint, False


def _element(hint: Any) -> tuple[Any, bool]:
    """What a list, tuple or sequence has for elements, and `True`; else `hint` and `False`."""
    match get_origin(hint), get_args(hint):
        case (origin, (element,)) if origin in (list, Sequence):
            return element, True
        case (origin, (element, end)) if origin is tuple and end is Ellipsis:
            return element, True
    return hint, False


def _is_frozen_dataclass(cls: Any) -> bool:
    return isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


# ---------------------------------------------------------------- instance <-> event


def to_event(
    instance: object,
    *,
    source: str | None = None,
    subject: str | None = None,
    id: str | None = None,  # noqa: A002 - the name CloudEvents gives it
    time: datetime | None = None,
) -> Event:
    """The event that an instance of an `@event_type` class stands for, with the given context."""
    binding = _binding(type(instance))
    name = binding.event_type.name
    event = Event(
        _dump(instance, binding.fields), type=name, source=source, subject=subject, id=id, time=time
    )
    found = list(problems(binding.attributes, event.attributes))
    if found:
        raise ConformanceError(name, found)
    return event


def from_event(cls: type[T], event: Event, registry: TypeRegistry | None = None) -> T:
    """The event as an instance of `cls`, or of its most derived subclass that the event's type allows.

    With a `registry`, an event of a type that has no class arrives as its nearest ancestor that has one.
    Attributes that the class does not know (its type may have grown since) are left out.
    """
    wanted = _binding(cls).event_type.name
    chosen = _most_derived(cls, event.type, registry)
    if chosen is None:
        raise ConformanceError(wanted, [f"the event's type is {event.type}, expected {wanted} or a subtype"])
    binding = _binding(chosen)
    found: list[str] = []
    values = _load(binding.fields, event.attributes, "", found)
    if found:
        raise ConformanceError(binding.event_type.name, found)
    return chosen(**values)


def _most_derived(cls: type[T], type_name: str | None, registry: TypeRegistry | None) -> type[T] | None:
    if type_name is None:
        return None
    known = dict(_subclasses(cls)) | {type_of(cls).name: cls}
    ancestors = registry.ancestors(type_name) if registry is not None and type_name in registry else ()
    return next((known[name] for name in (type_name, *ancestors) if name in known), None)


def _subclasses(cls: type[T]) -> Iterator[tuple[str, type[T]]]:
    for below in cls.__subclasses__():
        if "__angelia__" in vars(below):
            yield type_of(below).name, below
        yield from _subclasses(below)


def _dump(instance: object, fields: Sequence[_Field]) -> dict[str, Any]:
    """The attributes of an instance, nested as its fields are."""
    values: dict[str, Any] = {}
    for each in fields:
        value = getattr(instance, each.identifier)
        nested = each.attribute is None and isinstance(value, each.cls)
        values[each.name] = _dump(value, each.fields) if nested else value
    return values


def _load(
    fields: Sequence[_Field], values: Mapping[str, Value], prefix: str, found: list[str]
) -> dict[str, Any]:
    """The arguments that make an instance; adds to `found` what is wrong with `values`."""
    arguments: dict[str, Any] = {}
    for each in fields:
        name = prefix + each.name
        if each.attribute is not None:
            arguments[each.identifier] = value = values.get(name)
            if problem := value_problem(name, each.attribute, value):
                found.append(problem)
        elif each.optional and not any(other.startswith(f"{name}.") for other in values):
            arguments[each.identifier] = None
        else:
            nested = _load(each.fields, values, f"{name}.", found)
            arguments[each.identifier] = None if found else each.cls(**nested)
    return arguments


# ---------------------------------------------------------------- event type -> class

_made: WeakValueDictionary[tuple[EventType, ...], type[Any]] = WeakValueDictionary()


def class_of(event_type: EventType, registry: TypeRegistry) -> type[Any]:
    """A class for a type whose ancestors are in `registry`, derived from their classes.

    A name that is no identifier has its odd characters replaced by `_`: `order.total` is `order_total`.
    The same definitions give the same class for as long as somebody holds it.
    """
    parent = event_type.parent
    above = () if parent is None else (parent, *registry.ancestors(parent))
    lineage = (event_type, *map(registry.get, above))
    cls: type[Any] = object
    for start in reversed(range(len(lineage))):
        key = lineage[start:]
        _made[key] = cls = _made.get(key) or _make(lineage[start], cls)
    return cls


def _make(event_type: EventType, base: type[Any]) -> type[Any]:
    inherited = _binding(base).attributes if base is not object else {}
    _check_identifiers(event_type.name, {**inherited, **event_type.attributes})
    annotations: dict[str, Any] = {}
    namespace = {"__module__": __name__, "__doc__": event_type.doc or None, "__annotations__": annotations}
    for name, attribute in event_type.attributes.items():
        annotations[_identifier(name)] = _annotation(attribute)
        namespace[_identifier(name)] = _default(name, attribute)
    return _bind(type(_identifier(event_type.name.rpartition(".")[2]), (base,), namespace), event_type)


def _check_identifiers(type_name: str, names: Iterable[str]) -> None:
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(_identifier(name), name)
        if other != name:
            raise EventTypeError(
                f"{type_name}: the attributes {other!r} and {name!r} would both be the field "
                f"{_identifier(name)!r}"
            )


def _annotation(attribute: Attribute) -> Any:
    scalar = _CLASSES[attribute.datatype]
    annotation: Any = tuple[scalar, ...] if attribute.repeated else scalar  # type: ignore[valid-type]
    return annotation | None if attribute.optional else annotation


def _default(name: str, attribute: Attribute) -> Any:
    metadata = {"name": name, "doc": attribute.doc}
    if attribute.optional:
        return dataclasses.field(default=None, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def _identifier(name: str) -> str:
    """An attribute's name as one that Python code can write."""
    text = unicodedata.normalize("NFKC", "".join(c if f"_{c}".isidentifier() else "_" for c in name))
    if not text.isidentifier() or text.startswith("__"):
        text = f"a_{text}"  # starts with a digit, or would meddle with the class
    return f"{text}_" if keyword.iskeyword(text) else text
