"""What is taken for a secret, and what is left of it in a text."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.config import secrets
from savepoints.config.settings import KafkaSettings, Settings, SparkSettings


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test has planted."""
    monkeypatch.setattr(secrets, "_known", set())
    for name in secrets._ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.password", "sasl.jaas.config", "sasl.oauthbearer.client.secret", "ssl.key.pem"),
        *("ssl.keystore.password", "ssl.keystore.key", "basic.auth.user.info", "SASL.PASSWORD"),
        *("spark.hadoop.fs.s3a.secret.key", "fs.s3a.bucket.x.secret.key", "fs.s3a.session.token"),
        *("fs.azure.account.key.x.dfs.core.windows.net", "api.key", "api_key", "passwd"),
    ],
)
def test_the_name_of_a_setting_says_that_it_is_secret(name: str) -> None:
    assert secrets.is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("store", "security.protocol", "sasl.mechanism", "ssl.keystore.location", "entity_key"),
        *("spark.hadoop.fs.s3a.access.key", "fs.s3a.aws.credentials.provider", "key"),
        *("sasl.oauthbearer.token.endpoint.url", "spark.sql.shuffle.partitions"),
    ],
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert not secrets.is_secret(name)


@given(st.text(min_size=6).filter(lambda text: text.strip("*")))
def test_a_known_value_is_in_no_text_however_it_is_written(value: str) -> None:
    secrets.remember([value])

    for written in (value, json.dumps({"x": value}), repr(value), quote(value, safe="")):
        assert value not in secrets.mask(f"<{written}>").replace(secrets.MASK, "")
        assert secrets.mask(f"<{written}>") != f"<{written}>"


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("s3://user:hunter22@bucket/path", "bucket/path", "hunter22"),
        ("https://:hunter22@host: refused", "host: refused", "hunter22"),
        ("GET http://h/k?X-Amz-Date=2026&X-Amz-Signature=abc123&x=1", "X-Amz-Date=2026", "abc123"),
        ("https://a.blob.core.windows.net/c?sv=2024&sig=AbC%2F1%3D", "sv=2024", "AbC%2F1%3D"),
        ("http://h/?X-Amz-Security-Token=tok/en+1", "http://h/", "tok/en"),
        ('ScramLoginModule required username="me" password="hunter22";', "username", "hunter22"),
        ("no brokers: sasl password=hunter22, retrying", "retrying", "hunter22"),
        ("{'X-Amz-Security-Token': b'FQoGZXIvYXdz'}", "X-Amz", "FQoGZXIvYXdz"),
        (r"{\"password\": \"hunter22\"}", "password", "hunter22"),
    ],
)
def test_what_looks_like_a_secret_is_masked_without_being_known(
    text: str, kept: str, gone: str
) -> None:
    masked = secrets.mask(text)

    assert kept in masked
    assert gone not in masked
    assert secrets.MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "savepoint sp-20261121-101530-k3f9ab: batch 3 of s3://bucket/path@2",
        "kafka at broker:9092, topic orders@home",
        'a path: /x/y and a time 10:15@{"0":1}',
        "the secret of the password is a token",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert secrets.mask(text) == text


def test_values_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "AQoDYXdzEJr")

    assert secrets.mask("a wJalrXUtnFEMI/K7MDENG b AQoDYXdzEJr c") == "a *** b *** c"
    assert secrets.mask("quoted wJalrXUtnFEMI%2FK7MDENG") == "quoted ***"


def test_settings_make_their_secrets_known_and_do_not_show_them() -> None:
    jaas = 'org.apache.X required username="me" password="planted-in-jaas";'
    settings = Settings(
        kafka=KafkaSettings(
            options={
                "sasl.jaas.config": jaas,
                "sasl.password": "planted-password",
                "basic.auth.user.info": "name:planted-registry",
                "security.protocol": "SASL_SSL",
            }
        ),
        spark=SparkSettings(conf={"spark.hadoop.fs.s3a.secret.key": "planted-s3a"}),
    )

    assert settings.kafka.options["sasl.password"] == "planted-password"
    for shown in (repr(settings), str(settings), repr(settings.kafka.options)):
        assert "planted" not in shown
        assert "SASL_SSL" in shown
    for secret in ("planted-in-jaas", "planted-password", "planted-registry", "planted-s3a"):
        assert secrets.mask(f"server said {secret}!") == "server said ***!"


def test_short_values_are_words_and_are_left_in_texts() -> None:
    secrets.remember(["none", "", None, "sesame-street"])

    assert secrets.mask("none of sesame-street") == "none of ***"


def test_in_data_only_long_known_values_are_masked() -> None:
    secrets.remember(["testing", "planted-and-long"])
    row = '{"uri": "http://a:b@c/?sig=x", "name": "testing", "x": "planted-and-long"}'

    assert secrets.mask_data(row) == row.replace("planted-and-long", "***")


def test_json_values_are_masked_by_field_and_by_value() -> None:
    secrets.remember(["planted-value"])
    value = {
        "sasl.password": "x",
        "list": ["a planted-value", 1, None, ("t://u:p@h",)],
        "nested": {"token": "y", "tokens": 5, "key": "z", "secret": ""},
    }

    assert secrets.masked(value) == {
        "sasl.password": "***",
        "list": ["a ***", 1, None, ["t://***@h"]],
        "nested": {"token": "***", "tokens": 5, "key": "z", "secret": ""},
    }
