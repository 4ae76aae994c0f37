"""A broker as production has it: TLS, passwords by SCRAM and PLAIN, certificates of clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from savepoints.local import broker
from savepoints.local.jars import resolve_jars
from savepoints.local.java import find_java
from savepoints.local.service import Launch, Service, free_ports

USER, PASSWORD = "ann", "secret-of-ann"
_SECURITY = """
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{sasl},SSL://127.0.0.1:{ssl},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{sasl},\
SSL://127.0.0.1:{ssl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="bobs-secret";
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
listener.name.ssl.ssl.client.auth=required
"""


@dataclass(frozen=True)
class SecuredBroker:
    """Where the listeners are, and the files of its certificates.

    Attributes:
        sasl: `host:port` for passwords.
        ssl: `host:port` for certificates of clients.
        directory: It has `ca.pem`, and of the client `client.pem` and `client.key`, both in
            `client-keystore.pem`, and both in `client.p12` with the password of the user.
    """

    sasl: str
    ssl: str
    directory: Path


@contextmanager
def start(directory: Path) -> Iterator[SecuredBroker]:
    """Start a broker with new certificates."""
    _certify(directory)
    plain, sasl, ssl, controller = free_ports(4)
    service = Service(
        "secured", partial(_prepare, directory, plain, sasl, ssl, controller), directory,
        detach=False,
    )  # fmt: skip
    try:
        service.wait_ready()
        yield SecuredBroker(f"127.0.0.1:{sasl}", f"127.0.0.1:{ssl}", directory)
    finally:
        service.stop()


def _prepare(directory: Path, plain: int, sasl: int, ssl: int, controller: int) -> Launch:
    """Format an empty broker, with a user, as the broker of the local world is formatted."""
    launch = broker.prepare_broker(find_java(), resolve_jars(), directory)
    configuration = directory / "server.properties"
    added = _SECURITY.format(
        plain=plain, sasl=sasl, ssl=ssl, controller=controller, directory=directory
    )
    configuration.write_text(configuration.read_text() + added)
    data = directory / "broker-data"
    properties = (data / "meta.properties").read_text().splitlines()
    (cluster,) = [one.partition("=")[2] for one in properties if one.startswith("cluster.id=")]
    for file in data.iterdir():
        if file.is_file():
            file.unlink()
    scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    java = launch.command[: launch.command.index("kafka.Kafka")]
    words = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}")
    command = [*java, *words, "--config", str(configuration), "--add-scram", scram]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Launch(launch.command, f"127.0.0.1:{sasl}", partial(broker._is_ready, plain, cluster))


def _certify(directory: Path) -> None:
    """Write a certificate authority, and certificates of a server and a client by it."""
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("authority")
    own = _certificate(issuer, issuer, authority.public_key(), authority, is_authority=True)
    (directory / "ca.pem").write_bytes(own)
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(_name(name), issuer, key.public_key(), authority, is_authority=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        if name == "server":
            (directory / "server.pem").write_bytes(secret + made)
        else:
            (directory / "client.pem").write_bytes(made)
            (directory / "client.key").write_bytes(secret)
            (directory / "client-keystore.pem").write_bytes(secret + made)
            certificate = x509.load_pem_x509_certificate(made)
            encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
            (directory / "client.p12").write_bytes(
                pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption)
            )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> bytes:
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)
