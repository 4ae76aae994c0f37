"""One set of security options for both of Kafka's clients, on a broker that asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.config import secrets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError, UsageError
from savepoints.sources.kafka import client, security, topics
from savepoints.sources.kafka.spark_options import reader_options
from tests.sources.kafka import secured_broker
from tests.sources.kafka.secured_broker import PASSWORD, USER, SecuredBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
RECORDS = 7
WAYS = (
    "password", "as Java has it", "plain", "certificate", "keystore as PEM", "keystore as PKCS12",
)  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker.start(tmp_path_factory.mktemp("secured")) as started:
        yield started


def ways(broker: SecuredBroker) -> Mapping[str, tuple[str, dict[str, str]]]:
    """Return the listener and the options of each way to be let in."""
    ca = str(broker.directory / "ca.pem")
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    return {
        "password": (
            broker.sasl,
            {**sasl, "sasl.username": USER, "sasl.password": PASSWORD, "ssl.ca.location": ca},
        ),
        "as Java has it": (
            broker.sasl,
            {
                **sasl,
                "sasl.jaas.config": f'{SCRAM} required username="{USER}" password="{PASSWORD}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": ca,
            },
        ),
        "plain": (
            broker.sasl,
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "bob",
                "sasl.password": "bobs-secret",
                "ssl.ca.pem": Path(ca).read_text(),
            },
        ),
        "certificate": (
            broker.ssl,
            {
                "security.protocol": "SSL",
                "ssl.ca.location": ca,
                "ssl.certificate.location": str(broker.directory / "client.pem"),
                "ssl.key.location": str(broker.directory / "client.key"),
            },
        ),
        "keystore as PEM": (
            broker.ssl,
            {
                "security.protocol": "SSL",
                "ssl.ca.location": ca,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(broker.directory / "client-keystore.pem"),
            },
        ),
        "keystore as PKCS12": (
            broker.ssl,
            {
                "security.protocol": "SSL",
                "ssl.ca.location": ca,
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(broker.directory / "client.p12"),
                "ssl.keystore.password": PASSWORD,
            },
        ),
    }


@pytest.mark.nightly  # It takes a broker of its own.
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
def test_trap_java_and_librdkafka_name_security_differently(
    spark: SparkSession, secured: SecuredBroker, way: str
) -> None:
    """Our client writes and counts, Spark reads, with the same options of the settings."""
    from confluent_kafka.cimpl import NewTopic

    servers, options = ways(secured)[way]
    settings = KafkaSettings(bootstrap_servers=servers, options=options)
    topic = f"topic-{way.replace(' ', '-')}"
    admin = client.admin(settings)
    for made in admin.create_topics([NewTopic(topic, 1)]).values():
        made.result()
    producer = client.producer(settings)
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0

    reader = spark.read.format("kafka").options(**reader_options(settings))
    read = reader.option("subscribe", topic).load().selectExpr("cast(value as string)").collect()

    assert sorted(row[0] for row in read) == [str(one) for one in range(RECORDS)]


@pytest.mark.nightly
@pytest.mark.kafka
def test_a_wrong_password_is_said_and_not_shown(secured: SecuredBroker) -> None:
    servers, options = ways(secured)["password"]
    wrong = {**options, "sasl.password": "wrong-and-secret"}
    settings = KafkaSettings(bootstrap_servers=servers, options=wrong)

    with pytest.raises(EnvironmentUnfitError, match="a request to Kafka at") as refused:
        topics.ids(["any"], settings, timeout=5)

    assert "wrong-and-secret" not in str(refused.value)


def test_each_client_gets_its_own_names(tmp_path: Path) -> None:
    """Known answers, by Kafka's documentation of both."""
    (tmp_path / "ca.pem").write_text("AUTHORITY")
    (tmp_path / "key.pem").write_text("KEY-OF-A-CLIENT")
    ours = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "ssl.endpoint.identification.algorithm": "none",
        "client.id": "orders",
    }

    assert security.for_client(ours) == ours
    theirs = security.for_spark(ours)
    assert theirs == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} required username="ann" password="a\\"b\\\\c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "AUTHORITY",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "KEY-OF-A-CLIENT",
        "ssl.endpoint.identification.algorithm": "",
        "client.id": "orders",
    }
    assert security.for_spark(theirs) == theirs
    back = security.for_client(theirs)
    assert (back["sasl.username"], back["sasl.password"]) == ("ann", 'a"b\\c')
    assert (back["ssl.ca.pem"], back["ssl.key.pem"]) == ("AUTHORITY", "KEY-OF-A-CLIENT")
    assert not {"sasl.jaas.config", "ssl.truststore.type", "ssl.keystore.type"} & back.keys()
    assert secrets.mask(json.dumps(theirs)).count(secrets.MASK) >= 1
    assert "KEY-OF-A-CLIENT" not in secrets.mask(json.dumps(theirs))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl.truststore.location": "/etc/trust.jks"}, "only Java can read"),
        (
            {"ssl.keystore.location": "/etc/key.jks", "ssl.keystore.type": "JKS"},
            "keytool -importkeystore",
        ),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": "x required;"},
            "is GSSAPI, which is not supported",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x required;"}, "has no username"),
    ],
)
def test_what_librdkafka_cannot_use_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        security.for_client(options)
    assert said in f"{refused.value} {refused.value.hint}"
    assert refused.value.details["option"] in options


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"ssl\.ca\.location .*/none\.pem, which cannot be read"):
        security.for_spark({"ssl.ca.location": "/none.pem"})
