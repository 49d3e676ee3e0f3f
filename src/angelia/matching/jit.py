"""A typed door to numba, which has no types of its own.

Importing `kernels` imports numba and compiles every kernel, or loads it from numba's cache on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from angelia.matching import layout

__all__ = [
    "array",
    "at_address",
    "count_ones",
    "eight_bytes",
    "first_one",
    "in_range_mask",
    "inlined",
    "kernel",
    "pointer",
    "read_only",
    "stamp",
    "to_float",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def array(element: Any) -> Any:
    """The numba type of a contiguous array that a kernel may write."""
    return types.Array(element, 1, "C")


def read_only(element: Any) -> Any:
    """The numba type of a contiguous array that a kernel only reads, such as an Arrow buffer."""
    return types.Array(element, 1, "C", readonly=True)


def _fingerprint() -> str:
    """A hash of all sources that go into kernels."""
    here = Path(__file__)
    sources = [*here.parent.glob("*_kernels.py"), here, here.with_name("capi.py"), Path(layout.__file__)]
    return sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()


_FINGERPRINT = _fingerprint()


def kernel(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compile with one signature at once, without the GIL while it runs, cached on disk."""

    def compile_(function: Function) -> Function:
        dispatcher = njit(nogil=True)(function)
        stamp(dispatcher)
        dispatcher.compile(result(*arguments))
        dispatcher.disable_compile()
        return dispatcher  # type: ignore[no-any-return]

    return compile_


def stamp(compiled: Any) -> None:
    """Have numba cache a kernel, and take the cached one only if it is made of the same sources.

    Numba takes it for current as long as the file that it is in has not changed. Ours are made of several
    files, so the hash of all is added to what numba compares.
    """
    compiled.enable_caching()
    stored = compiled._cache._cache_file
    stored._source_stamp = (stored._source_stamp, _FINGERPRINT)


def inlined(function: Function) -> Function:
    """A part of kernels, compiled into each of them."""
    return njit(function, inline="never", nogil=True)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def first_one(_: Any, word: Any) -> Any:
    """The place of the lowest one bit of a word that is not zero."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


@intrinsic  # type: ignore[untyped-decorator]
def count_ones(_: Any, word: Any) -> Any:
    """How many bits of a word are one."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), code


@intrinsic  # type: ignore[untyped-decorator]
def to_float(_: Any, bits: Any) -> Any:
    """The float whose bits are given as an integer."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_: Any, data: Any) -> Any:
    """The address of an array's data, to be indexed like the array, which has to outlive it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(data.dtype)(data), code


def at_address(element: Any, beyond: int = 0) -> Any:
    """A function that makes a pointer to `element`s, some bytes beyond an address given as an integer."""

    @intrinsic  # type: ignore[untyped-decorator]
    def point(_: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.add(arguments[0], ir.Constant(ir.IntType(64), beyond))
            return builder.inttoptr(place, context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), code

    return point


@intrinsic  # type: ignore[untyped-decorator]
def eight_bytes(_: Any, data: Any, start: Any) -> Any:
    """Eight bytes, from anywhere in some data, as one word."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def in_range_mask(_: Any, values: Any, start: Any, low: Any, length: Any) -> Any:
    """One bit for each of 64 values from `start` on: whether it lies in `[low, low + length)`.

    Written as one vector comparison, because a compiler does not find it in a loop over bits.
    """
    lanes = 64

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        vector = ir.VectorType(word, lanes)
        place = builder.gep(arguments[0], [arguments[1]])
        loaded = builder.load(builder.bitcast(place, vector.as_pointer()), align=4)

        def splat(scalar: Any) -> Any:
            one = builder.insert_element(
                ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0)
            )
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
            return builder.shuffle_vector(one, one, zeros)

        inside = builder.icmp_unsigned("<", builder.sub(loaded, splat(arguments[2])), splat(arguments[3]))
        return builder.bitcast(inside, ir.IntType(lanes))

    return types.uint64(values, types.int64, types.uint32, types.uint32), code
