"""`angelia pipeline …`: the jobs of the pipeline from the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from angelia.errors import AngeliaError
from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from angelia.pipeline.meter import Meter

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Match, replay and understand what was published, on Apache Spark.",
    pretty_exceptions_enable=False,
)

Lake = Annotated[Path, typer.Option("--lake", metavar="DIR", help="The event lake.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the result goes, as Parquet.")]
Type = Annotated[str | None, typer.Option("--type", help="Events of this type and its descendants only.")]
Since = Annotated[str | None, typer.Option(help="From this time on, such as 2026-01-01T00:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Up to this time, which is not included.")]
FilterText = Annotated[str | None, typer.Option("--filter", help="Events that match this filter only.")]
Master = Annotated[str | None, typer.Option(help="Where Spark runs, such as spark://host:7077; else here.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in the directory.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with what comes into the lake, until stopped.")]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="DIR", help="With --follow: where it remembers how far it came.")
]


# ---------------------------------------------------------------- match


@app.command()
def match(
    lake: Lake,
    subscriptions: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help='JSON lines of {"id": …, "filter": …}, Parquet, a directory, or a broker (tcp://host:port).',
        ),
    ],
    out: Out,
    type: Type = None,  # noqa: A002
    since: Since = None,
    until: Until = None,
    follow: Follow = False,
    checkpoint: Checkpoint = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Find which events match which subscriptions: Parquet with event_id and subscription_id."""
    from angelia.pipeline.index import load
    from angelia.pipeline.options import query_of

    query = query_of(_options(lake, type, None, since, until))
    index = load(subscriptions, query.open().registry())
    _check_out(out, overwrite or follow)
    with _spark(master, conf) as spark:
        from angelia.pipeline.matching import match as matched
        from angelia.pipeline.matching import match_lake
        from angelia.pipeline.meter import Meter

        if follow:
            events = _stream(spark, _options(lake, type, None, since, until))
            _keep(matched(events, subscriptions, registry=query.open().registry()), out, checkpoint)
            return
        meter = Meter(spark)
        _write(spark, match_lake(spark, query, index, meter), out, "matching")
        pairs = _rows_in(out)
    _tell_problems(meter)
    typer.echo(f"{meter.events:,} events, {len(index):,} subscriptions, {pairs:,} pairs; wrote {out}")


# ---------------------------------------------------------------- replay


@app.command()
def replay(
    lake: Lake,
    filter: FilterText = None,  # noqa: A002
    type: Type = None,  # noqa: A002
    since: Since = None,
    until: Until = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where they go, as Parquet."),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="Publish the events to this broker, tcp://host:port.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Events a second, with --broker; else as fast as it goes.")
    ] = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Find past events that match a filter, in order of time: to files, or back into a broker."""
    if (out is None) == (broker is None):
        raise PipelineError("say where the events go: --out DIR, or --broker tcp://host:port")
    options = _options(lake, type, filter, since, until)
    from angelia.pipeline.options import query_of

    query = query_of(options)
    if broker is not None:
        from angelia.pipeline.publishing import republish

        count = republish(query, broker, rate)
        typer.echo(f"{count:,} events published to {broker}")
        return
    assert out is not None
    _check_out(out, overwrite)
    with _spark(master, conf) as spark:
        from angelia.pipeline.replaying import replay as replayed

        del options["lake"]
        _write(spark, replayed(spark, str(lake), **options), out, "replaying")
    typer.echo(f"{_rows_in(out):,} events; wrote {out}")


# ---------------------------------------------------------------- detect


@app.command()
def detect(
    lake: Lake,
    pattern: Annotated[str, typer.Option(help="Filters joined by then, such as 'x = 1 then x = 2'.")],
    out: Out,
    within: Annotated[
        str | None, typer.Option(help="How long an occurrence may take: 500ms, 10s, 5m, 2h, 1d.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="An attribute; each of its values has sequences of its own.")
    ] = None,
    delay: Annotated[str, typer.Option(help="With --follow: how late events may come.")] = "10s",
    type: Type = None,  # noqa: A002
    since: Since = None,
    until: Until = None,
    follow: Follow = False,
    checkpoint: Checkpoint = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Find occurrences of a pattern: Parquet with key, started, ended and event_ids."""
    from angelia.pattern import Pattern
    from angelia.pipeline.options import query_of

    parsed = Pattern.parse(pattern)
    limit = None if within is None else duration(within)
    late = duration(delay)
    options = _options(lake, type, None, since, until)
    query = query_of(options)
    _check_out(out, overwrite or follow)
    with _spark(master, conf) as spark:
        from angelia.pipeline.detection import detect as detected

        source = _stream(spark, options) if follow else spark.read.format("angelia").options(**options).load()
        found = detected(source, parsed, within=limit, key=key, delay=late, registry=query.open().registry())
        if follow:
            _keep(found, out, checkpoint)
            return
        _write(spark, found, out, "detecting")
    typer.echo(f"{_rows_in(out):,} occurrences of {parsed}; wrote {out}")


# ---------------------------------------------------------------- summaries


@app.command()
def summarise(
    lake: Lake,
    out: Out,
    subscriptions: Annotated[
        str | None, typer.Option(metavar="FILE", help="Subscriptions to be judged, as for match.")
    ] = None,
    bucket: Annotated[str, typer.Option(help="Count by minute, hour or day.")] = "hour",
    type: Type = None,  # noqa: A002
    since: Since = None,
    until: Until = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Tables of volume, attributes and subscriptions, each as Parquet in a directory of its own."""
    _check_out(out, overwrite)
    with _summary(lake, subscriptions, bucket, type, since, until, master, conf) as (spark, summary):
        for name, frame in summary._asdict().items():
            if frame is not None:
                _write(spark, frame, out / name, name)
                typer.echo(f"{name}: {_rows_in(out / name):,} rows in {out / name}")


@app.command()
def report(
    lake: Lake,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    subscriptions: Annotated[
        str | None, typer.Option(metavar="FILE", help="Subscriptions to be judged, as for match.")
    ] = None,
    bucket: Annotated[str, typer.Option(help="Count by minute, hour or day.")] = "hour",
    type: Type = None,  # noqa: A002
    since: Since = None,
    until: Until = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """The same as one HTML page with plots."""
    if not out.parent.is_dir():
        raise PipelineError(f"there is no directory {out.parent}")
    with _summary(lake, subscriptions, bucket, type, since, until, master, conf) as (spark, summary):
        from angelia.pipeline.progress import shown
        from angelia.pipeline.report import collect, render

        with shown(spark, "summarising"):
            facts = collect(summary, f"Events of {lake.name}" if type is None else f"{type} in {lake.name}")
    out.write_text(render(facts), "utf-8")
    typer.echo(f"{facts.events:,} events, {len(facts.subscriptions):,} subscriptions; wrote {out}")


@contextmanager
def _summary(
    lake: Path,
    subscriptions: str | None,
    bucket: str,
    type_name: str | None,
    since: str | None,
    until: str | None,
    master: str | None,
    conf: list[str] | None,
) -> Iterator[tuple[SparkSession, Any]]:
    from angelia.pipeline.index import read_subscriptions
    from angelia.pipeline.options import query_of

    options = _options(lake, type_name, None, since, until)
    registry = query_of(options).open().registry()
    filters = None if subscriptions is None else read_subscriptions(subscriptions)
    with _spark(master, conf) as spark:
        from angelia.pipeline.summary import summarise as summarised

        events = spark.read.format("angelia").options(**options).load()
        yield spark, summarised(events, filters, bucket=bucket, registry=registry)


# ---------------------------------------------------------------- traffic


@app.command()
def traffic(
    journal: Annotated[list[Path], typer.Argument(metavar="JOURNAL…", help="Journals, .jsonl or .parquet.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the tables there, as Parquet.")
    ] = None,
    overwrite: Overwrite = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """What travelled in a journal: messages by link, hops, latency, waste."""
    if out is not None:
        _check_out(out, overwrite)
    with _spark(master, conf) as spark:
        from angelia.pipeline.journals import read_journal
        from angelia.pipeline.journals import traffic as tables
        from angelia.pipeline.progress import shown
        from angelia.pipeline.tables import print_frame

        records = read_journal(spark, *journal).cache()
        with shown(spark, "reading"):
            torn = records.where("record is null").count()  # a broker that was killed leaves half a line
        if torn:
            print(f"left out: {torn:,} lines that are no records of a journal", file=sys.stderr)
        for name, frame in tables(records)._asdict().items():
            with shown(spark, name):
                rows = frame.toArrow()
            print_frame(name, rows)
            if out is not None:
                _write(spark, frame, out / name, name)


# ---------------------------------------------------------------- what they share

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> timedelta:
    """A time that passes, such as `500ms`, `10s`, `5m`, `2h` or `1d`."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    if parts is None:
        raise PipelineError(f"write a duration as 500ms, 10s, 5m, 2h or 1d, not {text!r}")
    return timedelta(seconds=float(parts[1]) * _UNITS[parts[2]])


def _options(
    lake: Path, type_name: str | None, filter_: str | None, since: str | None, until: str | None
) -> dict[str, str]:
    """The options of the data source; a lake that is not there is an error at the command line."""
    if not lake.is_dir():
        raise PipelineError(f"there is no lake in {lake}")
    given = {"lake": str(lake), "type": type_name, "filter": filter_, "since": since, "until": until}
    return {name: value for name, value in given.items() if value is not None}


def _check_out(out: Path, may_exist: bool) -> None:
    if out.exists() and not out.is_dir():
        raise PipelineError(f"{out} is a file; the result is a directory of Parquet files")
    if out.is_dir() and any(out.iterdir()) and not may_exist:
        raise PipelineError(f"{out} is not empty; use --overwrite, or another directory")


@contextmanager
def _spark(master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """A session; what goes wrong in Spark is one clear message."""
    from angelia.pipeline.progress import waiting
    from angelia.pipeline.session import open_session, parse_conf

    settings = parse_conf(conf or [])
    with waiting("starting Spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        is_ours = SparkSession.getActiveSession() is None
        spark = open_session(master, settings)
    try:
        yield spark
    except AngeliaError:
        raise
    except (PySparkException, Py4JError) as error:
        raise PipelineError(_reason(str(error))) from None
    finally:
        if is_ours:
            spark.stop()


def _reason(text: str) -> str:
    """What went wrong, from a message with the traces of two languages."""
    ours = re.findall(r"^(?:[\w.]+\.)?\w*(?:Error|Exception): (.+)$", text, re.MULTILINE)
    return (ours[-1] if ours else text.strip().splitlines()[0])[:500]


def _write(spark: SparkSession, frame: DataFrame, out: Path, label: str) -> None:
    from angelia.pipeline.progress import shown

    with shown(spark, label):
        frame.write.mode("overwrite").parquet(str(out.absolute()))


def _rows_in(out: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in out.glob("*.parquet"))


def _stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("angelia").options(**options).load()


def _keep(result: DataFrame, out: Path, checkpoint: Path | None) -> None:
    from angelia.pipeline.streams import keep

    if checkpoint is None:
        raise PipelineError("--follow needs --checkpoint DIR, where it remembers how far it came")
    query = keep(result, out, checkpoint)
    typer.echo(f"following; the result is in {out}, one directory a batch; stop with Ctrl-C", err=True)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


def _tell_problems(meter: Meter) -> None:
    for path, reason in meter.problems:
        print(f"left out: {path}: {reason}", file=sys.stderr)
