"""Security options of Kafka's two clients: Spark's is Java's, ours is librdkafka.

They name the same things differently, and librdkafka rejects Java's names. The settings may have
either: what one client does not know is translated. Certificates and keys are PEM for both and go
to Spark by their contents, so that executors need no file (KIP-651).

| librdkafka | Java |
| --- | --- |
| `sasl.mechanism`, `sasl.mechanisms` | `sasl.mechanism` |
| `sasl.username`, `sasl.password` | `sasl.jaas.config` |
| `ssl.ca.location`, `ssl.ca.pem` | `ssl.truststore.location`, `ssl.truststore.certificates` |
| `ssl.certificate.location`, `.pem` | `ssl.keystore.certificate.chain` |
| `ssl.key.location`, `ssl.key.pem` | `ssl.keystore.key` |
| both, of one file | `ssl.keystore.location` of the type PEM |
| `ssl.endpoint.identification.algorithm = none` | the same, but empty |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from savepoints.config import secrets
from savepoints.errors import UsageError

_LOGIN = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
}
_JAAS, _MECHANISM = "sasl.jaas.config", "sasl.mechanism"
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
# In a JAAS configuration: name="value", with \" and \\ in the value.
_ASSIGNED = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
# A file or its contents, by librdkafka's names, and what Java calls the contents and their store.
_PEM = (
    ("ssl.ca", "ssl.truststore.certificates", "ssl.truststore.type"),
    ("ssl.certificate", "ssl.keystore.certificate.chain", "ssl.keystore.type"),
    ("ssl.key", "ssl.keystore.key", "ssl.keystore.type"),
)


def for_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return options for Spark's client, without the prefix `kafka.`.

    Raises:
        UsageError: If a file cannot be read, or a mechanism is not known.
    """
    found = dict(options)
    if "sasl.mechanisms" in found:
        found[_MECHANISM] = found.pop("sasl.mechanisms")
    user, password = found.pop("sasl.username", None), found.pop("sasl.password", None)
    if user is not None and password is not None and _JAAS not in found:
        login = f'username="{_quoted(user)}" password="{_quoted(password)}"'
        found[_JAAS] = f"{_module(found.get(_MECHANISM, ''))} required {login};"
    for ours, theirs, store in _PEM:
        content = _content(found, ours)
        if content is not None and theirs not in found:
            found |= {theirs: content, store: "PEM"}
            if theirs == "ssl.keystore.key":
                secrets.remember([content])
    if found.get(_IDENTIFICATION) == "none":
        found[_IDENTIFICATION] = ""
    return found


def for_client(options: Mapping[str, str]) -> dict[str, str]:
    """Return options for librdkafka; UsageError for those of Java that it cannot use."""
    found = dict(options)
    if jaas := found.pop(_JAAS, None):
        _module(found.get(_MECHANISM, found.get("sasl.mechanisms", "")))
        named = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _ASSIGNED.findall(jaas)}
        for name in ("username", "password"):
            if name not in named:
                raise _refused(_JAAS, f"has no {name}", "set sasl.username and sasl.password")
            found.setdefault(f"sasl.{name}", named[name])
    kind = found.pop("ssl.truststore.type", "JKS")
    if location := found.pop("ssl.truststore.location", None):
        if kind != "PEM":
            raise _refused(
                "ssl.truststore.location",
                f"is a {kind} truststore, which only Java can read",
                "export the certificates as PEM and set ssl.ca.location: "
                f"keytool -exportcert -rfc -keystore {location} -alias ALIAS",
            )
        found.setdefault("ssl.ca.location", location)
    found.pop("ssl.truststore.password", None)
    _translate_keystore(found)
    for ours, theirs, _ in _PEM:
        if (content := found.pop(theirs, None)) and f"{ours}.location" not in found:
            found.setdefault(f"{ours}.pem", content)
    if found.get(_IDENTIFICATION) == "":
        found[_IDENTIFICATION] = "none"
    return found


def _translate_keystore(options: dict[str, str]) -> None:
    """Say where a client's key is in librdkafka's words, whose keystores are always PKCS#12."""
    kind = options.pop("ssl.keystore.type", "PKCS12")
    location = options.get("ssl.keystore.location")
    if location is None:
        return
    if kind == "PEM":
        del options["ssl.keystore.location"]
        options.setdefault("ssl.certificate.location", location)
        options.setdefault("ssl.key.location", location)
    elif kind != "PKCS12":
        raise _refused(
            "ssl.keystore.location",
            f"is a {kind} keystore, which only Java can read",
            "convert the keystore, and set ssl.keystore.location to the new file and "
            f"ssl.keystore.type to PKCS12: keytool -importkeystore -srckeystore {location} "
            "-destkeystore client.p12 -deststoretype PKCS12",
        )


def _module(mechanism: str) -> str:
    module = _MODULES.get(mechanism)
    if module is None:
        raise _refused(
            _MECHANISM,
            f"is {mechanism}, which is not supported" if mechanism else "is missing",
            f"set it to one of {', '.join(_MODULES)}, or use client certificates "
            "(security.protocol = SSL)",
        )
    return module


def _content(options: dict[str, str], name: str) -> str | None:
    """Take a PEM out of the options, from its file or as it stands there."""
    location, content = options.pop(f"{name}.location", None), options.pop(f"{name}.pem", None)
    if location is None or content is not None:
        return content
    try:
        return Path(location).read_text("utf-8")
    except OSError as error:
        why = f"is {location}, which cannot be read: {error.strerror}"
        raise _refused(f"{name}.location", why, "correct the path") from None


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _refused(name: str, why: str, hint: str) -> UsageError:
    return UsageError(f"{name} in [kafka.options] {why}", hint=hint, option=name)
