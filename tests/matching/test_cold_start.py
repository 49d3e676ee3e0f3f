"""Without numba, and before the kernels are compiled, the pure engine answers, and nothing freezes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(SRC), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_works_without_numpy_numba_and_pyarrow() -> None:
    run(
        """
        import sys
        from importlib.abc import MetaPathFinder

        class Blocked(MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("numpy", "numba", "pyarrow", "llvmlite"):
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Blocked())
        from angelia import Filter
        from angelia.matching import Matcher, MatcherError

        m = Matcher()
        for i in range(2000):
            m.add(i, Filter.parse(f"x = {i} or s prefix 'a'".replace("'", '"')), link=i % 3)
        assert m.match({"x": 7}) == [7]
        assert m.match_links({"x": 7}) == [1]
        assert len(m.match({"s": "abc"})) == 2000
        offsets, ids = m.match_batch({"x": [7, None, 9], "s": [None, "b", "q"]})
        assert (list(offsets), ids) == ([0, 1, 1, 2], [7, 9])
        m.remove(7)
        assert not m.match_any({"x": 7})
        assert m.stats().engine == "pure"
        for wrong in (lambda: m.snapshot(), lambda: Matcher(engine="compiled")):
            try:
                wrong()
            except MatcherError as error:
                assert "angelia[match]" in str(error), error
            else:
                raise AssertionError
        """
    )


def test_importing_the_matcher_imports_no_compiler() -> None:
    assert (
        run(
            """
        import sys
        from angelia import Filter
        from angelia.matching import Matcher
        m = Matcher()
        m.add(1, Filter.parse("x = 1"))
        m.match({"x": 1})
        print([name for name in ("numpy", "numba", "pyarrow") if name in sys.modules])
        """
        ).strip()
        == "[]"
    )


PAUSES = """
    import json, time, sys
    from angelia import Filter
    from angelia.matching import Matcher
    from angelia.matching.ready import readiness

    m = Matcher()
    for i in range(3000):
        m.add(i, Filter.parse(f"x = {i % 500} and y > {i % 7}"))
    longest, events, before = 0, 0, time.perf_counter()
    started = before
    while m.stats().engine == "pure" and readiness.problem is None:
        assert len(m.match({"x": 3, "y": 9})) == 6
        events += 1
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    assert readiness.problem is None, readiness.problem
    assert len(m.match({"x": 3, "y": 9})) == 6
    print(json.dumps({"ready": time.perf_counter() - started, "longest": longest, "events": events}))
"""


def test_a_cold_start_answers_all_the_while(tmp_path: Path) -> None:
    """A process that has never compiled takes a while to be fast, but never stands still."""
    cold = json.loads(run(PAUSES, NUMBA_CACHE_DIR=str(tmp_path)))
    warm = json.loads(run(PAUSES, NUMBA_CACHE_DIR=str(tmp_path)))
    assert cold["events"] > 100
    assert warm["ready"] < cold["ready"]
    # Loading a compiler's library is one step of the interpreter; a machine under load adds its own.
    assert cold["longest"] < 1
    assert warm["longest"] < 1
    print(cold, warm)
