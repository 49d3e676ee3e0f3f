"""When the compiled engine is ready.

Importing numba takes half a second, and compiling the kernels for the first time ten: too long for a
broker that has events to deliver. So a process starts with the pure engine; a thread has the kernels
compiled by another process, which leaves them in numba's cache on disk, and then loads them from there.

Loading is a second of Python in small steps, which others hardly notice if the interpreter's lock goes round
more often than usual, and if the garbage collector does not look at all the new objects meanwhile.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock, Thread
from weakref import WeakMethod

__all__ = ["Readiness", "readiness"]

TURN = 0.0005  # seconds after which the interpreter's lock is passed on while kernels are loaded
_COMPILE = "import os; os.nice(5); import angelia.matching.snapshot"


class Readiness:
    """Whether the compiled engine can be used; it is the same for all matchers of a process."""

    def __init__(self) -> None:
        self.is_ready = False
        self.problem: str | None = None
        self._lock = Lock()
        self._thread: Thread | None = None
        self._waiting: list[WeakMethod[Callable[[], None]]] = []
        missing = [name for name in ("numpy", "numba") if not _is_installed(name)]
        if missing:
            self.problem = f"no {' and no '.join(missing)} installed: pip install 'angelia[match]'"

    def prepare(self, then: Callable[[], None]) -> None:
        """See to it, in the background, that it gets ready; `then`, a method, is called when it is."""
        with self._lock:
            if self.problem is None and then not in (method() for method in self._waiting):
                self._waiting.append(WeakMethod(then))
            if self._thread is None and not self.is_ready and self.problem is None:
                self._thread = Thread(target=self._prepare, name="angelia-compile", daemon=True)
                self._thread.start()

    @property
    def engine(self) -> str:
        """The engine that is used: compiled, pure, or compiling: pure for the time being."""
        if self.is_ready:
            return "compiled"
        return "pure" if self._thread is None or self.problem is not None else "compiling"

    def wait(self) -> None:
        """Get it ready now, however long it takes."""
        if not self.is_ready and self.problem is None:
            self._load()

    def _prepare(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            try:
                self._load()
            except Exception as error:  # whatever it is, the pure engine goes on
                self.problem = f"the kernels could not be loaded: {error}"
        else:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            self.problem = f"the kernels could not be compiled: {last[0]}"

    def _load(self) -> None:
        with _unnoticed():
            import angelia.matching.snapshot

            assert angelia.matching.snapshot
        with self._lock:
            self.is_ready = True
            waiting, self._waiting = self._waiting, []
        for method in waiting:
            if (then := method()) is not None:
                then()


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Import much in a thread without holding others up."""
    interval, was_on = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(min(TURN, interval))
    gc.disable()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if was_on:
            # What is new goes to the oldest generation without being looked at, or it would be at once, all
            # in one step. Where the application has frozen objects, these stay so.
            was_frozen = gc.get_freeze_count()
            gc.freeze()
            if not was_frozen:
                gc.unfreeze()
            gc.enable()


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # an import hook says so
        return False


readiness = Readiness()
