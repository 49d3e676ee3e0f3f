"""A door to CPython's own functions: kernels that take Python objects and give some back.

What numba does to call a kernel costs more than a small index takes to match an event, and so does taking
an event apart in Python. A kernel made by `method` is called by the interpreter as its own built-in functions
are, and calls in turn what a C extension would: objects are addresses in it, and it counts references.

Such a kernel has the interpreter's lock. Only exact types are handled, so that no Python code runs meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.ccallback import CFunc

from angelia.matching.jit import at_address, stamp

__all__ = [
    "OBJECT",
    "OVERHEAD",
    "dict_get",
    "dict_next",
    "drop_reference",
    "float_value",
    "int_value",
    "int_value_of",
    "list_new",
    "lock_back",
    "method",
    "new_int",
    "new_reference",
    "tuple_item",
    "type_of",
    "unlock",
]

OBJECT = types.intp
OVERHEAD = object.__basicsize__  # bytes of an object before what its type adds; its type is the last eight
_METH_O = 8


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return types.ExternalFunction(name, result(*arguments))


dict_get = _function("PyDict_GetItemWithError", OBJECT, OBJECT, OBJECT)  # borrowed, or 0
dict_next = _function("PyDict_Next", types.int32, OBJECT, types.intp, types.intp, types.intp)
tuple_item = _function("PyTuple_GetItem", OBJECT, OBJECT, types.intp)  # borrowed
float_value = _function("PyFloat_AsDouble", types.float64, OBJECT)
int_value = _function("PyLong_AsLongLong", types.int64, OBJECT)
int_value_of = _function("PyLong_AsLongLongAndOverflow", types.int64, OBJECT, types.intp)
new_int = _function("PyLong_FromLongLong", OBJECT, types.int64)
list_new = _function("PyList_New", OBJECT, types.intp)
new_reference = _function("Py_IncRef", types.void, OBJECT)
drop_reference = _function("Py_DecRef", types.void, OBJECT)
unlock = _function("PyEval_SaveThread", types.intp)
lock_back = _function("PyEval_RestoreThread", types.void, types.intp)

type_of = at_address(types.intp, OVERHEAD - 8)  # `type_of(object)[0]`


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_method = ctypes.pythonapi.PyCFunction_NewEx
_new_method.restype = ctypes.py_object
_new_method.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p)


def method(function: Callable[[Any, Any], Any]) -> Callable[[object], Callable[[Any], Any]]:
    """Compile a function of two objects, cached on disk; the result binds the first of them.

    It returns a new reference, or 0 with an error set.
    """
    compiled = CFunc(function, ((OBJECT, OBJECT), OBJECT), locals={}, options={})
    stamp(compiled)
    compiled.compile()
    definition = _MethodDef(function.__name__.encode(), compiled.address, _METH_O, None)

    def bind(first: object) -> Callable[[Any], Any]:
        bound: Callable[[Any], Any] = _new_method(ctypes.byref(definition), first, None)
        return bound

    return bind
