"""The command line, as a user runs it: real processes."""

import json
import os
import subprocess
import sys

import pytest


def angelia(*arguments, stdin="", **environment):
    return subprocess.run(
        [sys.executable, "-m", "angelia", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, **environment},
    )


def test_help_and_version_are_there():
    assert "filter" in angelia("--help").stdout
    assert angelia("--version").stdout.startswith("angelia 0.")


def test_filter_check_prints_the_canonical_form():
    run = angelia("filter", "check", "price < 500 and price < 300")
    assert (run.returncode, run.stdout) == (0, "price < 300\n")


def test_a_bad_filter_is_one_clear_message_that_points_at_the_column():
    run = angelia("filter", "check", "price << 500")
    assert run.returncode == 1
    assert "column 8" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_filter_that_matches_nothing_is_told_so():
    run = angelia("filter", "check", "x > 5 and x < 3")
    assert run.returncode == 1
    assert "no event can match" in run.stderr


def test_explain_says_which_constraint_failed(tmp_path):
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"price": 420, "order": {"total": 3}}))
    run = angelia("explain", "price < 400 and order.total = 3", str(path))
    assert run.returncode == 1
    assert "✗ price < 400    (value: 420)" in run.stdout
    assert "✓ order.total = 3" in run.stdout


def test_explain_reads_an_event_from_standard_input_with_its_type():
    run = angelia("explain", "T: x = 1", "-", "--type", "T", stdin='{"x": 1}')
    assert run.returncode == 0, run.stderr


def test_explain_reads_an_event_as_subscribe_prints_it():
    printed = '{"@id": "b1-1", "@type": "T", "@time": "2026-01-01T00:00:00Z", "x": 1}'
    run = angelia("explain", 'T: x = 1 and @time < t"2026-02-01T00:00:00Z"', "-", stdin=printed)
    assert run.returncode == 0, run.stderr


def test_bad_events_are_one_clear_message():
    for stdin, message in (("{", "not valid JSON"), ("[1]", "JSON object"), ('{"x": [{}]}', "attribute 'x'")):
        run = angelia("explain", "x = 1", "-", stdin=stdin)
        assert run.returncode == 1
        assert message in run.stderr
        assert "Traceback" not in run.stderr
    assert "cannot read" in angelia("explain", "x = 1", "/nowhere.json").stderr


def test_an_output_that_cannot_write_every_sign_is_no_reason_to_fail():
    run = angelia("explain", "x = 1", "-", stdin='{"x": 1}', PYTHONIOENCODING="ascii")
    assert run.returncode == 0, run.stderr
    assert "x = 1" in run.stdout


def test_a_filter_that_is_not_text_is_one_clear_message():
    run = angelia("filter", "check", b"x = \xff")
    assert run.returncode == 1
    assert "unexpected character" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (["sim", "check", "--seeds", "3"], "numpy", "sim"),
        (["broker"], "prometheus_client", "broker"),
        (["lake", "ls", "--lake", "x"], "pyarrow", "match"),
        (["pipeline", "match", "--lake", ".", "--subscriptions", "x", "--out", "y"], "numpy", "pipeline"),
        (["pipeline", "traffic", __file__], "py4j", "pipeline"),
    ],
)
def test_without_an_extra_a_command_says_what_to_install(arguments, missing, extra):
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv = {['angelia', *arguments]!r}; "
    run = subprocess.run(
        [sys.executable, "-c", code + "from angelia.cli import main; main()"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(f"error: {missing}")
    assert run.stderr.endswith(f"is not installed: pip install 'angelia[{extra}]'\n")
