"""CloudEvents SQL 1.0 (CESQL): expressions over the attributes of a CloudEvent.

    expression = compile_expression("type LIKE 'com.example.%' AND sequence > 10")
    expression.matches({"type": "com.example.order", "sequence": "11", …})

Pure code, written against the specification's text; `docs/cesql.md` says where that text leaves a
choice and what is chosen here. Expressions come from strangers: their length and nesting are
limited, parsing is linear, and no evaluation makes a string longer than `MAX_STRING_LENGTH`.
"""

from angelia.broker.cesql.expression import Expression, compile_expression
from angelia.broker.cesql.parser import MAX_NESTING, MAX_TEXT_LENGTH
from angelia.broker.cesql.values import MAX_STRING_LENGTH, Fault, FaultKind, Value
from angelia.errors import CesqlError

__all__ = [
    "MAX_NESTING",
    "MAX_STRING_LENGTH",
    "MAX_TEXT_LENGTH",
    "CesqlError",
    "Expression",
    "Fault",
    "FaultKind",
    "Value",
    "compile_expression",
]
