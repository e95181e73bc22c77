"""Settings: where they come from, which source wins, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from inver.config import LimitSettings, Settings, settings_table
from inver.config.kinds import DURATION, SECONDS, SIZE, duration_ms, show_duration
from inver.config.sources import load
from inver.errors import Invalid
from inver.secrets import Secret
from inver.server.limits import Limits

KEYS = list(settings_table())


def write(folder: Path, text: str, name: str = "inver.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(**options) -> Invalid:
    with pytest.raises(Invalid) as caught:
        load(**{"environ": {}, **options})
    return caught.value


def test_defaults(tmp_path):
    settings = load(environ={}, folder=tmp_path)
    assert settings == Settings()
    assert {settings.origin(key) for key in KEYS} == {"default"}
    assert settings.port == 8181
    assert settings.hold_ms == 7 * 24 * 60 * 60 * 1000
    assert settings.database_file == Path(".inver/inver.db")
    assert settings.warehouse == str(Path(".inver/warehouse").resolve())


def test_each_source_overrides_the_one_before(tmp_path):
    write(tmp_path, '[server]\nport = 1\nhost = "file"\nworkers = 3\n')
    environ = {"INVER_SERVER__PORT": "2", "INVER_SERVER__HOST": "env"}
    settings = load({"server.port": 4}, environ=environ, folder=tmp_path)
    assert (settings.port, settings.host, settings.workers) == (4, "env", 3)
    assert settings.origin("server.port") == "flag"
    assert settings.origin("server.host") == "INVER_SERVER__HOST"
    assert settings.origin("server.workers") == str(tmp_path / "inver.toml")
    assert settings.origin("server.home") == "default"


def test_the_named_file_is_read_instead_of_the_usual_one(tmp_path):
    write(tmp_path, "[server]\nport = 1\n")
    by_flag = write(tmp_path, "[server]\nport = 2\n", "flag.toml")
    by_env = write(tmp_path, "[server]\nport = 3\n", "env.toml")
    environ = {"INVER_CONFIG": str(by_env)}
    assert load(environ=environ, folder=tmp_path).port == 3
    assert load(config=by_flag, environ=environ, folder=tmp_path).port == 2


def test_a_named_file_must_exist(tmp_path):
    assert refused(config=tmp_path / "none.toml").field == "--config"
    assert refused(environ={"INVER_CONFIG": "none.toml"}).field == "INVER_CONFIG"


def test_a_damaged_file_is_named(tmp_path):
    error = refused(config=write(tmp_path, "[server\n"))
    assert "inver.toml is not valid TOML" in error.message


@pytest.mark.parametrize(
    ("text", "unknown", "fix"),
    [
        ("[server]\nprot = 1\n", "server.prot", "did you mean server.port?"),
        ("[sever]\nport = 1\n", "[sever]", "did you mean [server]?"),
        ("[storage]\nsecret = 'x'\n", "storage.secret", "did you mean storage.secret_key?"),
        ("[server]\nqqqqqqqq = 1\n", "server.qqqqqqqq", "`inver config show` lists all settings"),
        ("port = 1\n", "port", "put it into a section: [server]"),
    ],
)
def test_unknown_keys_of_a_file_are_errors(tmp_path, text, unknown, fix):
    path = write(tmp_path, text)
    error = refused(config=path)
    assert error.message == f"{unknown} in {path} is not a setting"
    assert error.fix == fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("INVER_SERVER__PROT", "did you mean INVER_SERVER__PORT?"),
        ("INVER_SERVER_PORT", "did you mean INVER_SERVER__PORT?"),
        ("INVER_SEVER__PORT", "did you mean INVER_SERVER__PORT?"),
    ],
)
def test_unknown_variables_are_errors(name, fix):
    assert refused(environ={name: "1"}).fix == fix


def test_variables_that_are_no_settings_are_left_alone(tmp_path):
    environ = {"INVER_URL": "http://x", "INVER_TOKEN": "t", "INVER_CRASH_AT": "", "PATH": "/bin"}
    assert load(environ=environ, folder=tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[server]\nport = "x"', "server.port is 'x' in {path}, and must be a whole number from 0 to 65535"),
        (
            "[server]\nport = true",
            "server.port is True in {path}, and must be a whole number from 0 to 65535",
        ),
        (
            "[server]\nport = 65536",
            "server.port is 65536 in {path}, and must be a whole number from 0 to 65535",
        ),
        ("[server]\nworkers = 0", "server.workers is 0 in {path}, and must be a whole number of at least 1"),
        ("[server]\nhome = 1", "server.home is 1 in {path}, and must be a path"),
        ('[server]\nhost = ""', "server.host is '' in {path}, and must be text that is not empty"),
        ('[auth]\nenabled = "yes"', "auth.enabled is 'yes' in {path}, and must be true or false"),
        (
            "[tables]\nhold = 7",
            "tables.hold is 7 in {path}, and must be a number with a unit: ms, s, m, h or d",
        ),
        (
            "[limits]\nbody = -1",
            "limits.body is -1 in {path}, and must be a number of bytes, or a size such as 32MiB",
        ),
        (
            "[limits]\nrequest_time = inf",
            "limits.request_time is inf in {path}, and must be a number of seconds, "
            "or a duration such as 30s",
        ),
        (
            '[storage]\nexternal_roots = "x"',
            'storage.external_roots is \'x\' in {path}, and must be a list of text such as ["a", "b"]',
        ),
        (
            "[storage]\nsecret_key = 12345",
            "storage.secret_key is a value of another type in {path}, and must be text that is not empty",
        ),
    ],
)
def test_wrong_values_of_a_file(tmp_path, text, message):
    path = write(tmp_path, text)
    error = refused(config=path)
    assert error.message == message.format(path=path)
    assert error.field == text.split("\n")[0].strip("[]") + "." + text.split("\n")[1].split(" ")[0]
    assert error.fix is not None
    assert error.fix.startswith("write ")


def test_wrong_values_of_the_environment():
    error = refused(environ={"INVER_SERVER__PORT": "many"})
    assert "server.port is 'many' in INVER_SERVER__PORT" in error.message
    assert error.fix == "correct INVER_SERVER__PORT, or unset it"


def test_every_kind_of_value_from_a_file(tmp_path):
    write(
        tmp_path,
        """
        [server]
        home = "~/inver"
        grace_s = 2
        trusted_proxies = ["10.0.0.0/8"]
        [database]
        url = "postgresql://inver@db/inver"
        [storage]
        warehouse = "s3://bucket/prefix"
        path_style = false
        access_key = "id"
        secret_key = "hidden"
        [tables]
        hold = "36h"
        [limits]
        body = "1MiB"
        head = 4096
        request_time = "1m"
        """,
    )
    settings = load(environ={}, folder=tmp_path)
    assert settings.home == Path("~/inver").expanduser()
    assert settings.grace_s == 2.0
    assert settings.trusted_proxies == ("10.0.0.0/8",)
    assert settings.database == "postgresql://inver@db/inver"
    assert settings.warehouse == "s3://bucket/prefix"
    assert settings.storage.path_style is False
    assert settings.storage.secret_key == Secret("hidden")
    assert settings.hold_ms == 36 * 3_600_000
    assert (settings.limits.body, settings.limits.head, settings.limits.request_time) == (2**20, 4096, 60.0)


def test_every_kind_of_value_from_the_environment():
    environ = {
        "INVER_SERVER__HOME": "/srv",
        "INVER_SERVER__TRUSTED_PROXIES": "10.0.0.0/8, 192.168.0.0/16",
        "INVER_AUTH__ENABLED": "off",
        "INVER_TABLES__HOLD": "0s",
        "INVER_LIMITS__BODY": "10KB",
        "INVER_LIMITS__REQUEST_TIME": "1.5",
        "INVER_STORAGE__SECRET_KEY": "hidden",
    }
    settings = load(environ=environ)
    assert settings.home == Path("/srv")
    assert settings.trusted_proxies == ("10.0.0.0/8", "192.168.0.0/16")
    assert settings.auth.enabled is False
    assert settings.hold_ms == 0
    assert settings.limits.body == 10_000
    assert settings.limits.request_time == 1.5
    assert settings.storage.secret_key == Secret("hidden")


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_can_be_set(tmp_path, key):
    setting = settings_table()[key]
    section, name = key.split(".")
    write(tmp_path, f"[{section}]\n{name} = {setting.kind.example}\n")
    from_file = load(environ={}, folder=tmp_path)
    assert from_file.origin(key) == str(tmp_path / "inver.toml")
    text = ",".join(from_file.value(key)) if isinstance(from_file.value(key), tuple) else None
    text = text or setting.kind.example.strip('"')
    from_environment = load(environ={setting.env: text})
    assert from_environment.origin(key) == setting.env
    assert from_environment.value(key) == from_file.value(key)


def test_secrets_do_not_show_themselves():
    environ = {"INVER_STORAGE__SECRET_KEY": "hidden", "INVER_DATABASE__URL": "postgresql://u:hidden@db/x"}
    settings = load(environ=environ)
    assert "hidden" not in repr(settings)
    assert "postgresql://u:***@db/x" in repr(settings)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(("port", "given", "expected"), [(8181, None, 8182), (0, None, 0), (0, 9, 9)])
def test_the_probe_port_follows_the_port(port, given, expected):
    assert Settings(port=port, management_port=given).probe_port == expected


def test_unknown_keys_have_no_origin():
    with pytest.raises(KeyError):
        Settings().origin("server.prot")


def test_limits_are_those_of_the_server():
    """The settings name every limit that there is, with the server's own default."""
    configured = {name: getattr(LimitSettings(), name) for name in LimitSettings.__struct_fields__}
    assert configured == {name: getattr(Limits(), name) for name in Limits.__struct_fields__}


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_is_described(key):
    setting = settings_table()[key]
    assert setting.doc.endswith(".")
    assert setting.env == "INVER_" + key.upper().replace(".", "__")
    assert Settings().value(key) == setting.default


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("7d", 604_800_000), ("1.5h", 5_400_000), ("90 s", 90_000), ("20ms", 20)]
)
def test_durations(text, milliseconds):
    assert duration_ms(text) == milliseconds
    assert duration_ms(show_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1d", "1e3s"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="a number with a unit"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (SIZE, 2**20, "1MiB"),
        (SIZE, 1000, "1000"),
        (SECONDS, 2.5, "2.5"),
        (DURATION, 0, "0s"),
        (DURATION, 1500, "1500ms"),
    ],
)
def test_values_are_shown_as_they_are_written(kind, value, shown):
    assert kind.shown(value) == shown
    assert kind.from_text(shown) == value
