"""What a broker can be told, and where."""

import re
from pathlib import Path

import pytest
import typer

from angelia.broker.address import Address
from angelia.broker.cli import broker, choices
from angelia.broker.settings import BrokerSettings, load
from angelia.errors import BrokerError


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    for name in BrokerSettings.model_fields:
        monkeypatch.delenv(f"ANGELIA_{name.upper()}", raising=False)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "broker.toml"
    file.write_text('name = "file"\nqueue = 1\npeers = ["tcp://127.0.0.1:7401"]\nheartbeat = 0.5\n')
    monkeypatch.setenv("ANGELIA_NAME", "environment")
    monkeypatch.setenv("ANGELIA_QUEUE", "2")
    settings = load(file, name="flag", queue=None)
    assert (settings.name, settings.queue, settings.heartbeat) == ("flag", 2, 0.5)
    assert settings.peers == ["tcp://127.0.0.1:7401"]
    assert settings.policy == "drop_oldest"


def test_an_option_that_is_not_there_is_told(tmp_path):
    (tmp_path / "broker.toml").write_text('nme = "x"')
    with pytest.raises(BrokerError, match=r"^there is no option nme$"):
        load(tmp_path / "broker.toml")


def test_lists_in_the_environment_are_json(monkeypatch):
    monkeypatch.setenv("ANGELIA_PEERS", '["127.0.0.1:1", "127.0.0.1:2"]')
    assert load().peers == ["127.0.0.1:1", "127.0.0.1:2"]
    monkeypatch.setenv("ANGELIA_PEERS", "127.0.0.1:1")
    with pytest.raises(BrokerError, match=r"ANGELIA_PEERS.*JSON"):
        load()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", 0),
        ("heartbeat", -1),
        ("policy", "wait"),
        ("routing", "magic"),
        ("max_frame", 10),
        ("log_level", "loud"),
        ("listen", "http://127.0.0.1"),
        ("listen", "127.0.0.1:99999"),
        ("peers", ["tcp://127.0.0.1:7401/x"]),
        ("master", "nowhere:port"),
        ("timeout", "soon"),
    ],
)
def test_errors_name_the_option(option, value):
    with pytest.raises(BrokerError, match=rf"^{option}(\.\d+)?: "):
        load(**{option: value})


def test_an_unknown_option_in_a_file_is_an_error_that_names_it(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text("ques = 3")
    with pytest.raises(BrokerError, match="ques"):
        load(file)


def test_a_file_that_is_missing_or_damaged_is_told(tmp_path):
    with pytest.raises(BrokerError, match=r"no file .*nothing\.toml"):
        load(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(BrokerError, match=r"bad\.toml is not valid TOML"):
        load(tmp_path / "bad.toml")


@pytest.mark.parametrize("listen", ["0.0.0.0:7400", "[::]:7400", "192.0.2.7", "example.org:1"])
def test_a_broker_listens_beyond_loopback_only_with_tls_and_tokens(listen, tmp_path):
    tls = {"tls_cert": tmp_path / "c.pem", "tls_key": tmp_path / "k.pem"}
    tokens = {"tokens": tmp_path / "tokens"}
    for given in ({}, tls, tokens):
        with pytest.raises(BrokerError, match="open to other machines"):
            load(listen=listen, **given)
    assert load(listen=listen, **tls, **tokens).address.tls
    assert not load(listen=listen, insecure=True).address.tls


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.9.10", "[::1]:7400", "localhost:7400", ":7400"])
def test_on_loopback_nothing_is_asked_for(listen):
    assert load(listen=listen).address.is_loopback


def test_by_default_a_broker_listens_on_loopback():
    assert load().address == Address("127.0.0.1", 7400)


def test_a_certificate_without_its_key_is_an_error():
    with pytest.raises(BrokerError, match="go together"):
        load(tls_cert=Path("c.pem"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:7401", "tcp://127.0.0.1:7401"),
        ("host", "tcp://host:7400"),
        (":1", "tcp://127.0.0.1:1"),
        ("tls://[::1]:9", "tls://[::1]:9"),
    ],
)
def test_addresses(text, address):
    assert str(Address.parse(text)) == address
    assert Address.parse(address) == Address.parse(text)


def rows():
    """The rows of the guide's table of options: `python -m tests.broker.test_settings` prints them."""
    for flag, (name, field) in zip(flags(), BrokerSettings.model_fields.items(), strict=True):
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, "", [], False) else f"`{default}`"
        yield f"| `{flag}` | `ANGELIA_{name.upper()}` | {shown} | {field.description}{choices(name)} |"


def flags():
    """The flag of each option, as the command has it."""
    app = typer.Typer()
    app.command()(broker)
    known = {one.name: one.opts[0] for one in typer.main.get_command(app).params}
    return [known.get(name) or known[name.removesuffix("s")] for name in BrokerSettings.model_fields]


def test_every_option_is_a_flag_and_is_told_in_the_guide_with_its_default_and_its_meaning():
    guide = (Path(__file__).parents[2] / "docs" / "broker.md").read_text("utf-8")
    assert re.findall(r"^\| `--.*$", guide, re.MULTILINE) == list(rows())


if __name__ == "__main__":
    print("\n".join(rows()))
