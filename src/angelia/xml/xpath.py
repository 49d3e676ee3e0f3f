"""Filters in a subset of XPath (thesis 4.4.2, Figure 4.12): text to filter, and back.

    path       = ("child::*" | "*") [ "[" or "]" ]      one event, whatever its type
    or         = and { "or" and }
    and        = test { "and" test }
    test       = "not" "(" or ")" | "(" or ")" | "true()" | "false()"
               | ("starts-with" | "ends-with" | "contains") "(" name "," string ")"
               | name [ operator value ] | literal operator name
    name       = step { "/" step } | ("@" | "attribute::") context          step = [ "child::" ] element
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="
    value      = literal | "(" literal { "," literal } ")"                  several after "=" only
    literal    = string | [ "-" ] number | "true()" | "false()" | ("xs" | "xsd") ":dateTime" "(" string ")"

`ends-with`, lists, doubled quotes in strings, exponents and `dateTime` are of XPath 2.0. There are no
reserved words: what a word is depends on where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, NoReturn, TypeVar

from angelia.errors import FilterError, FilterLimitError, FilterSyntaxError, XmlError
from angelia.event import CONTEXT, Kind, Scalar, format_timestamp, parse_timestamp
from angelia.filter import Filter
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import ANY, Domain
from angelia.filter.normal import expand
from angelia.filter.operators import OPERATORS, one_of
from angelia.filter.parser import (
    MAX_CONSTRAINTS,
    MAX_NESTING,
    MAX_TEXT_LENGTH,
    And,
    Constant,
    Constraint,
    Node,
    Not,
    Or,
)
from angelia.types.xml_document import check_xml_name

__all__ = ["constraint_to_xpath", "from_xpath", "parse_xpath", "to_xpath"]

_FUNCTIONS = {"starts-with": "prefix", "ends-with": "suffix", "contains": "contains"}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONTEXT = frozenset(CONTEXT) - {"type"}

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string> "(?:[^"]|"")*" | '(?:[^']|'')*')
    | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<axis>   child::|attribute::)
    | (?P<date>   xsd?:dateTime)
    | (?P<name>   [^\W\d][\w.\-]*)
    | (?P<symbol> <=|>=|!=|[=<>@*/()\[\],\-])
    | (?P<end>    \Z)
    )""",
    re.VERBOSE,
)

T = TypeVar("T")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


# ---------------------------------------------------------------- in


def from_xpath(text: str) -> Filter:
    """The filter that an XPath expression denotes, or a `FilterSyntaxError` with the column."""
    try:
        return Filter(expand(parse_xpath(text)))
    except FilterLimitError as error:
        raise FilterLimitError(error.message, text, max(error.column - 1, 0)) from None


def parse_xpath(text: str) -> Node:
    """The syntax tree of an XPath expression."""
    if not isinstance(text, str):
        raise FilterError(f"an XPath is a text, not {type(text).__name__}")
    if len(text) > MAX_TEXT_LENGTH:
        raise FilterLimitError(
            f"the XPath has {len(text)} characters; at most {MAX_TEXT_LENGTH} are allowed", text
        )
    return _Parser(text).parse()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        found = _TOKEN.match(text, position)
        if found is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            problem = "this string does not end" if text[position] in "'\"" else "is not part of our XPath"
            raise FilterSyntaxError(f"{text[position]!r}: {problem}", text, position)
        assert found.lastgroup is not None
        tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        position = found.end()
    return tokens


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0
        self._constraints = 0

    def parse(self) -> Node:
        self._skip("child::")
        self._expect("*")
        node: Node = Constant(True)
        if self._skip("["):
            node = self._alternatives()
            self._expect("]")
        if self._peek().kind != "end":
            self._fail("the end of the expression")
        return node

    # -- tokens

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _skip(self, text: str) -> bool:
        token = self._peek()
        skipped = token.text == text and token.kind != "string"
        self._next += skipped
        return skipped

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            self._fail(repr(text))

    def _fail(self, expected: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token.kind == "end" else repr(token.text[:40])
        raise FilterSyntaxError(f"expected {expected}, found {found}", self._text, token.start)

    # -- tests

    def _alternatives(self) -> Node:
        parts = [self._conjunction()]
        while self._skip("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self) -> Node:
        parts = [self._test()]
        while self._skip("and"):
            parts.append(self._test())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _test(self) -> Node:
        token = self._peek()
        if token.text == "(":
            self._take()
            return self._nested()
        if token.kind == "name" and self._peek(1).text == "(" and token.text not in ("true", "false"):
            return self._function()
        if (token.kind in ("axis", "name") or token.text == "@") and not self._is_constant():
            return self._comparison()
        return self._flipped()

    def _nested(self) -> Node:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise FilterLimitError(
                f"the XPath is nested deeper than {MAX_NESTING} levels", self._text, self._peek().start
            )
        node = self._alternatives()
        self._expect(")")
        self._depth -= 1
        return node

    def _function(self) -> Node:
        function = self._take()
        self._expect("(")
        if function.text == "not":
            return Not(self._nested())
        if function.text not in _FUNCTIONS:
            known = ", ".join(["not", *_FUNCTIONS, "true", "false"])
            raise FilterSyntaxError(
                f"the function {function.text[:40]!r} is not part of our XPath; these are: {known}",
                self._text,
                function.start,
            )
        name = self._name()
        self._expect(",")
        if self._peek().kind != "string":
            self._fail("a string")
        constraint = self._constraint(name, _FUNCTIONS[function.text], self._literal)
        self._expect(")")
        return constraint

    def _comparison(self) -> Node:
        name = self._name()
        operator = self._peek().text
        if operator not in _FLIPPED or self._peek().kind != "symbol":
            return self._counted(Constraint(name, ANY))
        self._take()
        if operator == "=" and self._peek().text == "(":
            return self._one_of(name)
        return self._constraint(name, operator, self._literal)

    def _flipped(self) -> Node:
        """`literal operator name`, or a constant."""
        token = self._peek()
        value = self._literal()
        operator = self._peek().text
        if operator not in _FLIPPED or self._peek().kind != "symbol":
            return Constant(value) if isinstance(value, bool) else self._fail("an operator")
        self._take()
        return self._constraint(self._name(), _FLIPPED[operator], lambda: value, token.start)

    def _one_of(self, name: str) -> Node:
        start = self._take().start
        values = [self._literal()]
        while self._skip(","):
            values.append(self._literal())
        self._expect(")")
        return self._placed(lambda: self._counted(Constraint(name, one_of(values))), start)

    def _constraint(
        self, name: str, operator: str, read: Callable[[], Scalar], start: int | None = None
    ) -> Constraint:
        start = self._peek().start if start is None else start
        value = read()
        return self._placed(lambda: self._counted(Constraint(name, OPERATORS[operator](value))), start)

    def _placed(self, make: Callable[[], T], start: int) -> T:
        try:
            return make()
        except FilterSyntaxError:
            raise
        except (FilterError, XmlError) as error:
            raise FilterSyntaxError(str(error), self._text, start) from None

    def _counted(self, constraint: Constraint) -> Constraint:
        self._constraints += 1
        if self._constraints > MAX_CONSTRAINTS:
            raise FilterLimitError(
                f"a filter has at most {MAX_CONSTRAINTS} constraints", self._text, self._peek().start
            )
        return constraint

    # -- names and literals

    def _name(self) -> str:
        if self._skip("@") or self._skip("attribute::"):
            token = self._peek()
            if token.text not in _CONTEXT:
                self._fail(f"one of {', '.join(sorted(_CONTEXT))}")
            return f"@{self._take().text}"
        steps = [self._step()]
        while self._skip("/"):
            steps.append(self._step())
        return ".".join(steps)

    def _step(self) -> str:
        self._skip("child::")
        token = self._peek()
        if token.kind != "name":
            self._fail("the name of an attribute")
        self._placed(lambda: check_xml_name(token.text), token.start)
        return self._take().text

    def _is_constant(self) -> bool:
        return self._peek().text in ("true", "false") and self._peek(1).text == "("

    def _literal(self) -> Scalar:
        token = self._peek()
        if self._is_constant():
            self._take()
            self._expect("(")
            self._expect(")")
            return token.text == "true"
        if token.kind == "string":
            return _unquoted(self._take().text)
        if token.kind == "number" or (token.text == "-" and self._peek(1).kind == "number"):
            sign = "-" if self._skip("-") else ""
            return self._placed(lambda: _number(sign + self._take().text), token.start)
        if token.kind == "date":
            return self._date()
        return self._fail('a value: "text", a number, true(), false() or xs:dateTime("2026-01-01T00:00:00Z")')

    def _date(self) -> datetime:
        self._take()
        self._expect("(")
        token = self._peek()
        if token.kind != "string":
            self._fail("a string")
        try:
            at = parse_timestamp(_unquoted(self._take().text))
        except ValueError as error:
            raise FilterSyntaxError(str(error), self._text, token.start) from None
        self._expect(")")
        return at


def _unquoted(literal: str) -> str:
    quote = literal[0]
    return literal[1:-1].replace(quote * 2, quote)


def _number(text: str) -> int | float:
    if re.fullmatch(r"-?[0-9]+", text):
        if len(text) > 20:
            raise FilterError("this number is too long")
        return int(text)
    return float(text)


# ---------------------------------------------------------------- out


def to_xpath(filter: Filter) -> str:  # noqa: A002 - what it is
    """The XPath of a filter, apart from its types; `FilterError` if our XPath cannot say it."""
    alternatives = [_conjunction(conjunction) for conjunction in filter.conjunctions]
    if not alternatives:
        return "child::*[false()]"
    if "" in alternatives:
        return "child::*"
    return f"child::*[{' or '.join(alternatives)}]"


def _conjunction(conjunction: Conjunction) -> str:
    parts: list[str] = []
    for name, condition in sorted(conjunction.conditions.items()):
        parts += _condition(_path(name), condition)
    return " and ".join(parts)


def _condition(path: str, condition: Condition) -> list[str]:
    parts = [] if condition.some is None else _domain(path, condition.some)
    return parts + [f"not({' and '.join(_domain(path, domain))})" for domain in condition.none]


def constraint_to_xpath(name: str, domain: Domain) -> str:
    """A single constraint of an advertisement, which several comparisons cannot express."""
    parts = _domain(_path(name), domain)
    if len(parts) != 1:
        raise FilterError(f"XPath cannot say in one comparison that {' and '.join(parts)}")
    return parts[0]


def _path(name: str) -> str:
    if name.startswith("@"):
        if name[1:] not in _CONTEXT:
            raise FilterError(f"XPath cannot compare {name}; a subscription names the type it is about")
        return name
    try:
        for step in name.split("."):
            check_xml_name(step)
    except XmlError as error:
        raise FilterError(f"the attribute {name!r} cannot be in an XPath: {error}") from None
    return "/".join(f"child::{step}" for step in name.split("."))


def _domain(path: str, domain: Domain) -> list[str]:
    if domain.kind is None:
        return [path]
    if domain.patterns:
        raise FilterError(f"XPath cannot say that {path} matches a regular expression")
    if domain.is_empty:
        return ["false()"]
    if domain.points is not None:
        values = [_written(point) for point in sorted(domain.points)]
        return [f"{path} = {values[0]}" if len(values) == 1 else f"{path} = ({', '.join(values)})"]
    parts = _interval(path, domain)
    parts += [f"{path} != {_written(point)}" for point in sorted(domain.excluded)]
    parts += [f"ends-with({path}, {_written(domain.suffix)})"] if domain.suffix else []
    parts += [f"contains({path}, {_written(part)})" for part in sorted(domain.contains)]
    return parts or _whole(path, domain)


def _whole(path: str, domain: Domain) -> list[str]:
    if domain.kind is Kind.STRING:
        return [f'{path} >= ""']
    raise FilterError(f"XPath cannot say that {path} is any {domain.kind}")


def _interval(path: str, domain: Domain) -> list[str]:
    low, high = domain.low, domain.high
    if prefix := domain.prefix:
        alone = low[2] and domain.reads(prefix)  # the prefix itself is left out, and not by the text
        start = f"starts-with({path}, {_written(prefix)})"
        return [start, f"{path} != {_written(prefix)}"] if alone else [start]
    parts = [f"{path} {'>' if low[2] else '>='} {_written(low[1])}"] if domain.has_low else []
    return parts + ([f"{path} {'<=' if high[2] else '<'} {_written(high[1])}"] if domain.has_high else [])


def _written(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true()" if value else "false()"
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, datetime):
        return f'xs:dateTime("{format_timestamp(value)}")'
    return repr(value)
