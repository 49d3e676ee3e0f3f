r"""CESQL: text to tree (specification 2 and 3.6).

    expression = comparison { ("AND" | "OR" | "XOR") comparison }
    comparison = sum { ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") sum }
    sum        = product { ("+" | "-") product }
    product    = test { ("*" | "/" | "%") test }
    test       = unary { ["NOT"] "LIKE" string | ["NOT"] "IN" "(" expression { "," expression } ")" }
    unary      = ("NOT" | "-") unary | "EXISTS" name | primary
    primary    = integer | string | "TRUE" | "FALSE" | name | "(" expression ")"
               | function "(" [ expression { "," expression } ] ")"

Note what the specification's order says: NOT binds closer than LIKE, IN and `=`, and AND, OR and XOR
are of equal precedence. A sign right before digits, where an operand is due, is part of the integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from angelia.broker.cesql.functions import find_function
from angelia.broker.cesql.like import LikePattern
from angelia.broker.cesql.tree import (
    NEGATION,
    Arithmetic,
    Attribute,
    Call,
    Chain,
    Comparison,
    Exists,
    In,
    Like,
    Literal,
    Logic,
    Node,
    Not,
    Ordering,
    Step,
)
from angelia.broker.cesql.values import MAX_INTEGER, MIN_INTEGER
from angelia.errors import CesqlError

__all__ = ["KEYWORDS", "MAX_NESTING", "MAX_TEXT_LENGTH", "parse"]

MAX_TEXT_LENGTH = 8 * 1024
MAX_NESTING = 40

KEYWORDS = frozenset(["AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"])
_NAME = re.compile(r"[a-z0-9]+")
_FUNCTION = re.compile(r"[A-Za-z][A-Za-z_]*")
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<string> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<word>   [A-Za-z0-9_]+)
    | (?P<symbol> <=|>=|<>|!=|[=<>+\-*/%(),])
    | (?P<end>    \Z)
    )""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str  # "string", "integer", "word", "end"; of keywords and symbols, themselves
    text: str
    start: int
    end: int


def parse(text: str) -> Node:
    """The tree of an expression, or a `CesqlError` that points at the column."""
    if not isinstance(text, str):
        raise CesqlError(f"an expression is a text, not {type(text).__name__}")
    if len(text) > MAX_TEXT_LENGTH:
        raise CesqlError(
            f"the expression has {len(text)} characters; at most {MAX_TEXT_LENGTH} are allowed", text
        )
    return _Parser(text).parse()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        found = _TOKEN.match(text, position)
        if found is None:
            _refuse_character(text, position)
        assert found.lastgroup is not None
        position = found.end()
        tokens.append(_token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
    return tokens


def _token(group: str, text: str, start: int) -> _Token:
    kind = group
    if group == "symbol":
        kind = text
    elif group == "word" and text.isdigit():
        kind = "integer"
    elif group == "word" and text.upper() in KEYWORDS:
        kind = text.upper()
    return _Token(kind, text, start, start + len(text))


def _refuse_character(text: str, position: int) -> NoReturn:
    position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n"))
    if text[position] in "'\"":
        raise CesqlError("the string has no closing quote", text, position)
    raise CesqlError(f"{text[position]!r} is not part of an expression", text, position)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._expression()
        if self._peek().kind != "end":
            self._fail("an operator or the end of the expression")
        return node

    # -- tokens

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _accept(self, kind: str) -> bool:
        accepted = self._peek().kind == kind
        self._next += accepted
        return accepted

    def _expect(self, kind: str) -> _Token:
        return self._take() if self._peek().kind == kind else self._fail(f"'{kind}'")

    def _fail(self, expected: str) -> NoReturn:
        token = self._peek()
        found = "the expression ends" if token.kind == "end" else f"there is {_shown(token.text)}"
        raise CesqlError(f"{expected} is due where {found}", self._text, token.start)

    # -- operators, from the loosest to the closest

    def _expression(self) -> Node:
        return self._chain(0)

    def _chain(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._test()
        first, steps = self._chain(level + 1), list[Step]()
        while (make := _LEVELS[level].get(self._peek().kind)) is not None:
            operator = self._take()
            steps.append(make(operator.start + 1, operator.kind, self._chain(level + 1)))
        return Chain(first.column, first, steps) if steps else first

    def _test(self) -> Node:
        first, steps = self._unary(), list[Step]()
        while (step := self._like_or_in()) is not None:
            steps.append(step)
        return Chain(first.column, first, steps) if steps else first

    def _like_or_in(self) -> Step | None:
        column = self._peek().start + 1
        negated = self._accept("NOT")
        if self._accept("LIKE"):
            if self._peek().kind != "string":
                self._fail("a string, the pattern of LIKE,")
            return Like(column, LikePattern(_unquoted(self._take().text)), negated)
        if self._accept("IN"):
            self._expect("(")
            return In(column, self._list(), negated)
        return self._fail("LIKE or IN") if negated else None

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind == "NOT":
            self._take()
            return Not(token.start + 1, self._nested(self._unary))
        if token.kind in ("+", "-") and self._is_sign():
            return self._integer(self._take().text)
        if token.kind == "-":
            self._take()
            return Call(token.start + 1, "-", NEGATION, [self._nested(self._unary)])
        if token.kind == "EXISTS":
            self._take()
            return Exists(token.start + 1, self._name("the name of an attribute"))
        return self._primary()

    def _is_sign(self) -> bool:
        sign, digits = self._peek(), self._peek(1)
        return digits.kind == "integer" and digits.start == sign.end

    def _nested(self, parse_part: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise CesqlError(
                f"the expression is nested deeper than {MAX_NESTING} levels", self._text, self._peek().start
            )
        node = parse_part()
        self._depth -= 1
        return node

    # -- operands

    def _primary(self) -> Node:
        token = self._peek()
        column = token.start + 1
        match token.kind:
            case "integer":
                return self._integer("")
            case "string":
                return Literal(column, _unquoted(self._take().text))
            case "TRUE" | "FALSE":
                return Literal(column, self._take().kind == "TRUE")
            case "(":
                self._take()
                node = self._nested(self._expression)
                self._expect(")")
                return node
            case "word" if self._peek(1).kind == "(":
                return self._call()
        return Attribute(column, self._name("a value"))

    def _integer(self, sign: str) -> Node:
        token = self._take()
        digits = token.text.lstrip("0")
        number = int(sign + (digits or "0")) if len(digits) <= 10 else MAX_INTEGER + 1
        start = token.start - len(sign)
        if not MIN_INTEGER <= number <= MAX_INTEGER:
            raise CesqlError(
                f"an integer is from {MIN_INTEGER} to {MAX_INTEGER}, which "
                f"{_shown(sign + token.text)} is not",
                self._text,
                start,
            )
        return Literal(start + 1, number)

    def _name(self, expected: str) -> str:
        token = self._peek()
        if token.kind not in ("word", "integer"):
            self._fail(expected)
        if not _NAME.fullmatch(token.text):
            raise CesqlError(
                f"{_shown(token.text)} is not the name of an attribute: "
                "those are of lower-case letters and digits",
                self._text,
                token.start,
            )
        return self._take().text

    def _call(self) -> Node:
        name = self._take()
        if not _FUNCTION.fullmatch(name.text):
            raise CesqlError(f"{_shown(name.text)} is not the name of a function", self._text, name.start)
        self._expect("(")
        arguments = [] if self._accept(")") else self._list()
        return Call(name.start + 1, name.text, find_function(name.text, len(arguments)), arguments)

    def _list(self) -> list[Node]:
        """Expressions up to the closing parenthesis."""
        nodes = [self._nested(self._expression)]
        while self._accept(","):
            nodes.append(self._nested(self._expression))
        self._expect(")")
        return nodes


_LEVELS: tuple[dict[str, Callable[[int, str, Node], Step]], ...] = (
    dict.fromkeys(("AND", "OR", "XOR"), Logic),
    {**dict.fromkeys(("=", "!=", "<>"), Comparison), **dict.fromkeys(("<", "<=", ">", ">="), Ordering)},
    dict.fromkeys(("+", "-"), Arithmetic),
    dict.fromkeys(("*", "/", "%"), Arithmetic),
)


def _unquoted(literal: str) -> str:
    """A string literal's text: only its own quote can be escaped, other backslashes are themselves."""
    quote = literal[0]
    return literal[1:-1].replace("\\" + quote, quote)


def _shown(text: str) -> str:
    return text if len(text) <= 32 else text[:32] + "…"
