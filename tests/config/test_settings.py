"""Settings: where each value comes from, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from savepoints.config import files
from savepoints.config import settings as config_settings
from savepoints.config.settings import RetentionSettings, Settings
from savepoints.errors import UsageError

FILE = """
store = "from-file"

[kafka]
bootstrap_servers = "file:9092"

[kafka.options]
"security.protocol" = "SSL"

[spark.conf]
"spark.sql.shuffle.partitions" = "5"

[queries.totals]
app = "jobs:app"
checkpoints = "s3://b/c"
every = "10m"

[profiles.prod]
store = "from-profile"

[profiles.prod.kafka]
bootstrap_servers = "prod:9092"
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty directory without any of our variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-the-user"))
    for name in [name for name in os.environ if name.startswith("SAVEPOINTS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / files.FILE
    path.write_text(FILE)
    return path


def test_without_anything_there_are_defaults() -> None:
    settings = config_settings.load()

    assert (settings.store, settings.jars, settings.queries) == ("", None, {})
    assert settings.spark.master == "local[*]"


def test_flag_wins_over_environment_over_profile_over_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config_settings.load().store == "from-file"
    assert config_settings.load(profile="prod").store == "from-profile"

    monkeypatch.setenv("SAVEPOINTS_STORE", "from-environment")
    assert config_settings.load(profile="prod").store == "from-environment"

    assert config_settings.load(profile="prod", flags={"store": "from-flag"}).store == "from-flag"
    assert config_settings.load(profile="prod", flags={"store": None}).store == "from-environment"


def test_the_class_loads_what_the_command_line_does(file: Path) -> None:
    loaded = Settings.load(file)

    assert loaded.model_dump() == config_settings.load(file=file).model_dump()
    assert loaded.queries["totals"].app == "jobs:app"


def test_a_profile_replaces_single_values_of_a_table(file: Path) -> None:
    kafka = config_settings.load(profile="prod").kafka

    assert kafka.bootstrap_servers == "prod:9092"
    assert kafka.options == {"security.protocol": "SSL"}


def test_trap_a_driver_goes_by_another_profile_than_the_commands(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`attach` and the jobs had the store of the file, and the commands that of the variable."""
    monkeypatch.setenv("SAVEPOINTS_PROFILE", "prod")

    assert Settings.load().store == "from-profile"

    monkeypatch.setenv("SAVEPOINTS_PROFILE", "prd")
    with pytest.raises(UsageError, match="no profile 'prd'"):
        Settings.load()
    assert Settings.load(profile="prod").store == "from-profile"


def test_trap_the_directory_of_the_user_is_one_called_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell has looked at a settings file; the store knew the way home, the metrics did not."""
    monkeypatch.setenv("HOME", "/home/of-somebody")
    (tmp_path / files.FILE).write_text('jars = "~/jars"\nmetrics_file = "~/savepoints.prom"')

    settings = config_settings.load()

    assert settings.jars == Path("/home/of-somebody/jars")
    assert settings.metrics_file == Path("/home/of-somebody/savepoints.prom")


def test_nested_settings_come_from_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS", "env:9092")

    settings = config_settings.load()

    assert settings.kafka.bootstrap_servers == "env:9092"
    assert settings.kafka.options == {"security.protocol": "SSL"}


def test_sparks_own_names_are_kept(file: Path) -> None:
    assert config_settings.load().spark.conf == {"spark.sql.shuffle.partitions": "5"}


def test_durations_in_the_file_are_read(file: Path) -> None:
    file.write_text(FILE.replace('every = "10m"', 'trigger = "90s"'))

    query = config_settings.load().queries["totals"]

    assert (query.every, query.trigger) == (None, timedelta(seconds=90))


@pytest.mark.parametrize("every", ["10m", "PT1H", "*/10 * * * *"])
def test_periodic_savepoints_have_an_interval_or_a_cron_expression(every: str, file: Path) -> None:
    file.write_text(FILE.replace("10m", every))

    assert config_settings.load().queries["totals"].every == every


def test_retention_of_a_query_stands_beside_that_for_all(file: Path) -> None:
    file.write_text(
        FILE
        + """
[retention]
keep_last = 3
keep_within = "36h"
keep_tags = ["release"]

[queries.totals.retention]
keep_daily = 7
after_savepoint = true
"""
    )

    settings = config_settings.load()

    assert settings.retention == RetentionSettings(
        keep_last=3, keep_within=timedelta(hours=36), keep_tags=("release",)
    )
    assert settings.queries["totals"].retention == RetentionSettings(
        keep_daily=7, after_savepoint=True
    )


def user_file(content: str) -> None:
    files.user_file().parent.mkdir(parents=True, exist_ok=True)
    files.user_file().write_text(content)


def test_what_is_nearer_to_the_project_wins(tmp_path: Path) -> None:
    user_file('store = "user"\njars = "user"\nmetrics_file = "user"\n[profiles.p]\njars = "p"')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.savepoints]\nstore = "pyproject"\njars = "pyproject"\n[tool.other]\nx = 1'
    )
    (tmp_path / files.FILE).write_text('store = "project"')

    plain, profile = config_settings.load(), config_settings.load(profile="p")

    assert (plain.store, str(plain.jars), str(plain.metrics_file)) == (
        *("project", "pyproject", "user"),
    )
    # A profile wins over all that has no profile, in whatever file it stands.
    assert (profile.store, str(profile.jars)) == ("project", "p")


def test_a_file_that_is_named_stands_for_those_of_the_directory(tmp_path: Path) -> None:
    user_file('metrics_file = "user"')
    (tmp_path / "pyproject.toml").write_text('[tool.savepoints]\njars = "pyproject"')
    (tmp_path / files.FILE).write_text('store = "project"')
    (tmp_path / "other.toml").write_text("")

    settings = config_settings.load(file=tmp_path / "other.toml")

    assert (settings.store, settings.jars, str(settings.metrics_file)) == ("", None, "user")


def test_a_pyproject_without_our_table_is_nothing_to_us(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool]\n')

    assert config_settings.load().store == ""


def test_two_loads_do_not_share_anything(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('store = "one"')
    two.write_text('store = "two"')

    first = config_settings.load(file=one)
    second = config_settings.load(file=two)

    assert (first.store, second.store, config_settings.load().store) == ("one", "two", "")


def test_the_file_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.toml").write_text('store = "other"')
    monkeypatch.setenv("SAVEPOINTS_CONFIG", str(tmp_path / "other.toml"))

    assert config_settings.load().store == "other"


def test_a_file_that_was_named_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        config_settings.load(file=Path("none.toml"))

    monkeypatch.setenv("SAVEPOINTS_CONFIG", "none.toml")
    with pytest.raises(UsageError, match=r"none\.toml does not exist"):
        config_settings.load()


def test_trap_a_named_file_that_is_no_plain_one_counts_as_none(tmp_path: Path) -> None:
    """`--config <(sops -d savepoints.toml)` gave the defaults without a word."""
    reads, writes = os.pipe()
    os.write(writes, b'store = "from-a-pipe"')
    os.close(writes)

    try:
        assert config_settings.load(file=Path(f"/dev/fd/{reads}")).store == "from-a-pipe"
    finally:
        os.close(reads)

    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read: Is a directory") as refused:
        config_settings.load(file=tmp_path)
    assert "--config" in refused.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_trap_a_home_of_somebody_else_is_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo -u spark` may leave HOME as it was."""
    home = tmp_path / "home"
    home.mkdir(mode=0o000)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

    with pytest.raises(UsageError, match="cannot be read: Permission denied") as refused:
        config_settings.load()

    assert "set XDG_CONFIG_HOME" in refused.value.hint


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_trap_a_file_is_read_in_the_encoding_of_the_locale(encoding: str, tmp_path: Path) -> None:
    """Elsewhere names got other letters, or the file was no TOML; as it was with Windows' mark."""
    (tmp_path / files.FILE).write_text('store = "/daten/zw\u00f6lf"\r\n', encoding=encoding)
    code = "from savepoints import Settings; print(ascii(Settings.load().store))"
    path = os.pathsep.join(sys.path)

    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == r"'/daten/zw\xf6lf'"


@pytest.mark.parametrize(
    ("content", "path", "suggestion"),
    [
        ('stor = "x"', "stor", "store"),
        ('[kafka]\nbootstrap_server = "x"', "kafka.bootstrap_server", "bootstrap_servers"),
        ('[spark]\nmastr = "x"', "spark.mastr", "master"),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\ntriger = "1s"',
            "queries.q.triger",
            "trigger",
        ),
        ('[profiles.p]\nstorre = "x"', "storre", "store"),
        ("[retention]\nkeep_lsat = 1", "retention.keep_lsat", "keep_last"),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\n[queries.q.retention]\nkeep_lsat = 1',
            "queries.q.retention.keep_lsat",
            "keep_last",
        ),
        ("[profiles.p.queries.q.retention]\nkep_tags = []", None, "keep_tags"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(
    content: str, path: str | None, suggestion: str, tmp_path: Path
) -> None:
    (tmp_path / files.FILE).write_text(content)

    if path is None:
        content = '[queries.q]\napp = "a:b"\ncheckpoints = "c"\n' + content
        (tmp_path / files.FILE).write_text(content)
        path = "queries.q.retention.kep_tags"

    with pytest.raises(UsageError, match=f"no setting {path}, which savepoints.toml") as refused:
        config_settings.load(profile="p" if "profiles" in content else None)

    assert refused.value.hint == f"did you mean {suggestion}?"


def test_trap_a_mistyped_key_is_found_in_the_night_its_profile_is_chosen(file: Path) -> None:
    """What else a profile lacks may come from the environment of its machine."""
    file.write_text(FILE + "[profiles.night.queries.new]\nevery = '5m'\n")
    assert config_settings.load(profile="prod").store == "from-profile"
    file.write_text(file.read_text() + "triger = '1s'\n")

    for chosen in (None, "prod"):
        with pytest.raises(UsageError, match=r"no setting queries\.new\.triger,") as refused:
            config_settings.load(profile=chosen)
        assert "savepoints.toml [profiles.night]" in refused.value.message
        assert refused.value.hint == "did you mean trigger?"


def test_an_unknown_key_that_is_like_no_other_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.FILE).write_text("zzzzzz = 1")

    with pytest.raises(UsageError, match="no setting zzzzzz") as refused:
        config_settings.load()

    assert refused.value.hint


def test_an_unknown_nested_key_of_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVER", "x")

    with pytest.raises(UsageError) as refused:
        config_settings.load()

    assert refused.value.hint == "did you mean bootstrap_servers?"


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("SAVEPOINTS_STROE", "SAVEPOINTS_STORE"),
        ("SAVEPOINTS_KAFKE__BOOTSTRAP_SERVERS", "SAVEPOINTS_KAFKA"),
        ("SAVEPOINTS_PROFIL", "SAVEPOINTS_PROFILE"),
        ("savepoints_stroe", "SAVEPOINTS_STORE"),
    ],
)
def test_a_mistyped_variable_is_refused_with_a_suggestion(
    variable: str, suggestion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")

    with pytest.raises(UsageError, match=f"{variable} is not a setting") as refused:
        config_settings.load()

    assert refused.value.hint == f"did you mean {suggestion}?"


def test_a_variable_that_is_like_no_other_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAVEPOINTS_ZZZZZZ", "x")

    with pytest.raises(UsageError) as refused:
        config_settings.load()

    assert "SAVEPOINTS_STORE" in refused.value.hint


def test_trap_what_kubernetes_says_of_a_service_called_savepoints_is_no_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP_ADDR"):
        monkeypatch.setenv(f"SAVEPOINTS_{name}", "tcp://10.0.0.1:80")

    assert config_settings.load().store == ""


def test_every_variable_that_the_code_reads_is_known() -> None:
    package = Path(config_settings.__file__).parents[1]
    named = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"[\"'](SAVEPOINTS_[A-Z]+(?:_[A-Z]+)*)[\"']", path.read_text())
    }
    settings = {f"SAVEPOINTS_{name.upper()}" for name in config_settings.Settings.model_fields}

    assert {"SAVEPOINTS_CODE_VERSION", "SAVEPOINTS_CRASH_AT"} <= named
    assert named <= settings | set(files.OTHER_VARIABLES)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("store = ", "is not valid TOML"),
        ("[retention]\nkeep_last = -2", r"setting retention\.keep_last"),
        (
            "[retention]\nkeep_within = 7",
            r"setting retention\.keep_within: '7' is not a valid duration",
        ),
        ("[promote]\nrows = true", r"setting promote\.rows: true is not a number"),
        ("[retention]\nkeep_last = true", r"retention\.keep_last: true is not a number"),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\nmax_offsets_per_trigger = 0',
            r"setting queries\.q\.max_offsets_per_trigger is 0, .* greater than or equal to 1",
        ),
        ('[queries.q]\napp = "a:b"\ncheckpoints = ""', r"q\.checkpoints: it is empty"),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\n[queries.q.outputs]\nx = ""',
            r"q\.outputs\.x: it is empty",
        ),
        ("profiles = 1", r"\[profiles\] in savepoints.toml has keys of its own"),
        ("profiles.x = 1", r"\[profiles\] in savepoints.toml has keys of its own"),
        ("store = 5", "setting store is 5, but should be text in quotes"),
        (
            '[hooks]\ncommand = ["tell", "x"]',
            "hooks.command is a list, but should be text in quotes",
        ),
        ("[retention]\nkeep_last = 1.5", "keep_last is 1.5, but should be a whole number"),
        ("[retention]\nkeep_last = -2", "is -2, but should be greater than or equal to -1"),
        ('[restore]\nverify = "maybe"', 'verify is "maybe", but should be true or false'),
        ('[hooks]\non = ["x"]', "on.0 is \"x\", but should be 'paused', "),
        ('[queries]\nq = "a:b"', r'queries\.q is "a:b", but should be a table'),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\noutput_topics = "t"',
            'output_topics is "t", but should be a list',
        ),
        (
            '[kafka.options]\n"sasl.password" = 12345',
            r"sasl\.password is \*\*\*, but should be text in quotes",
        ),
        ('[hooks]\nurl = "https:///x"', r"hooks\.url: it must .* and name a host"),
        ('[hooks]\nurl = "https://a:b@host/x"', r"hooks\.url: the credentials .* hooks\.command"),
        ('[hooks]\ncommand = "tell \'x"', r"hooks\.command: it has an unclosed quote"),
        ("[compare.thresholds]\nseconds = inf", r"thresholds\.seconds is .* finite"),
        (
            '[kafka.options]\nsasl.jaas.config = "x"',
            r'a name with dots needs quotes, "sasl\.jaas\.config"; correct the setting in',
        ),
        ('[queries.q]\napp = "a:b"', r"setting queries\.q\.checkpoints is missing"),
        ('[queries.q]\napp = "a:b"\ncheckpoints = "c"\nevery = "soon"', r"q\.every: .*soon"),
    ],
)
def test_a_wrong_value_is_refused_and_named(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / files.FILE).write_text(content)

    with pytest.raises(UsageError, match=says):
        config_settings.load()


def test_a_wrong_value_says_where_it_stands(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(FILE + "[profiles.prod.retention]\nkeep_last = -2")
    with pytest.raises(UsageError) as refused:
        config_settings.load(profile="prod")
    assert refused.value.hint == "correct the setting in savepoints.toml [profiles.prod]"

    monkeypatch.setenv("SAVEPOINTS_RETENTION__KEEP_LAST", "many")
    with pytest.raises(UsageError) as refused:
        config_settings.load()
    variable = "the environment variable SAVEPOINTS_RETENTION__KEEP_LAST"
    assert refused.value.hint == f"correct the setting in {variable}"

    monkeypatch.delenv("SAVEPOINTS_RETENTION__KEEP_LAST")
    for name in ("SAVEPOINTS_RETENTION", "SAVEPOINTS_KAFKA__OPTIONS"):
        with monkeypatch.context() as patch:
            patch.setenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
            patch.setenv(name, '{"sasl.password": "planted-secret"')
            with pytest.raises(UsageError, match=f"variable {name} is not JSON") as refused:
                config_settings.load()
            assert "planted" not in str(refused.value)


def test_an_unknown_profile_is_refused_and_the_known_are_named(file: Path) -> None:
    with pytest.raises(UsageError, match="'live'") as refused:
        config_settings.load(profile="live")

    assert refused.value.hint == "use one of the known profiles: prod"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config_settings.load().store = "x"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ('[queries.q]\napp = "a:b"', "add checkpoints to [queries.q] in {file}"),
        (
            '[profiles.prod.queries.q]\napp = "a:b"',
            "add checkpoints to [queries.q] in {file} [profiles.prod]",
        ),
        ('[profiles.prod]\nhooks.on = ["x"]', "correct the setting in {file} [profiles.prod]"),
    ],
)
def test_the_hint_names_the_file_of_what_is_missing_or_in_a_list(
    content: str, hint: str, tmp_path: Path
) -> None:
    """Neither has a value of its own in the file, which need not be `savepoints.toml`."""
    file = tmp_path / "prod.toml"
    file.write_text(f"{content}\n[profiles.prod.spark]\n")

    with pytest.raises(UsageError) as refused:
        config_settings.load(file=file, profile="prod")

    assert refused.value.hint == hint.format(file=file)


def test_a_missing_setting_of_a_query_in_the_environment_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAVEPOINTS_QUERIES__TOTALS__APP", "a:b")

    with pytest.raises(UsageError) as refused:
        config_settings.load()

    assert refused.value.hint == "set SAVEPOINTS_QUERIES__TOTALS__CHECKPOINTS"


@pytest.mark.parametrize("where", ["outputs", "tables", "archives"])
def test_a_table_name_is_refused_when_the_settings_are_read(where: str, file: Path) -> None:
    """Most commands have no session that could look it up, and must not find out halfway."""
    lines = ["[queries.totals]", 'app = "totals:app"', 'checkpoints = "/ck"']
    file.write_text("\n".join([*lines, f"[queries.totals.{where}]", 'sold = "main.sales.orders"']))

    with pytest.raises(UsageError, match=rf"queries.totals.{where}.sold: main.sales.orders") as no:
        config_settings.load()

    assert "DESCRIBE DETAIL main.sales.orders" in no.value.message
    assert no.value.hint == "correct the setting in savepoints.toml"
