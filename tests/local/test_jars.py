"""The locked jars. Where a download is needed, a script in the place of Java plays Ivy."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from savepoints.errors import EnvironmentUnfitError
from savepoints.local.jars import LOCKS, resolve, spark_lock
from savepoints.spark.versions import FIRST, LAST, SparkVersion

CONTENT = {"spark/a-1.0.jar": "spark a", "spark/b-2.0.jar": "spark b", "kafka/c-3.0.jar": "kafka c"}


@dataclass(frozen=True)
class Registry:
    """A lock of three jars, and a registry that delivers what is in `remote`."""

    lock: Path
    remote: Path
    downloads: Path

    def fail(self) -> None:
        """Let every download fail from now on."""
        (self.remote / "fail").touch()

    @property
    def download_count(self) -> int:
        """How often Ivy was run."""
        return len(self.downloads.read_text().splitlines()) if self.downloads.exists() else 0


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    lock = tmp_path / "lock"
    lock.mkdir()
    remote = tmp_path / "remote"
    for name, content in CONTENT.items():
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        (remote / name).write_text(content)
    sums = [
        f"{hashlib.sha256(text.encode()).hexdigest()}  {name}" for name, text in CONTENT.items()
    ]
    (lock / "SHA256SUMS").write_text("\n".join(sums) + "\n")

    downloads = tmp_path / "downloads"
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh
case "$*" in
*-retrieve*)
    echo "$*" >> {downloads}
    [ -e {remote}/fail ] && {{ echo "SERVER ERROR: no such host"; exit 1; }}
    for last; do :; done
    cp -r {remote}/spark {remote}/kafka "${{last%%/\\[*}}";;
*)
    echo '    java.home = {java.parent.parent}' >&2
    echo '    java.version = 17.0.15' >&2;;
esac
""")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("SAVEPOINTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SAVEPOINTS_IVY_SETTINGS", raising=False)
    return Registry(lock, remote, downloads)


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*/")), ids=lambda lock: lock.name)
def test_a_lock_has_exactly_the_modules_of_its_ivy_xml(lock: Path) -> None:
    modules = ET.parse(lock / "ivy.xml").iter("dependency")
    wanted = [
        f"{module.attrib['conf'].split('->')[0]}/{module.attrib['name']}-{module.attrib['rev']}.jar"
        for module in modules
    ]

    lines = (lock / "SHA256SUMS").read_text().splitlines()

    assert all(re.fullmatch(r"[0-9a-f]{64}  (spark|kafka)/[^/ ]+\.jar", line) for line in lines)
    names = [line.split()[1] for line in lines]
    assert names == sorted(names)
    assert sorted(wanted) == names


def test_each_version_of_spark_has_its_own_set() -> None:
    versions = [(3, 5), (4, 0), (4, 1), (4, 2)]
    assert (versions[0], versions[-1]) == (FIRST, LAST)
    for number in versions:
        text = (spark_lock(SparkVersion(number)) / "SHA256SUMS").read_text()
        assert re.search(rf"spark-sql-kafka-0-10_2\.1[23]-{number[0]}\.{number[1]}\.", text)
        assert "delta-spark" in text
        assert "hadoop-aws" in text


def test_a_version_without_a_set_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(
        EnvironmentUnfitError, match=r"no list of jars for the installed Spark 3\.4"
    ) as raised:
        spark_lock(SparkVersion((3, 4)))

    assert "3.5, 4.0, 4.1 or 4.2" in raised.value.hint


def test_jars_are_downloaded_into_the_cache(registry: Registry, tmp_path: Path) -> None:
    jars = resolve(registry.lock)

    cache = tmp_path / "cache" / "jars"
    directory = jars[0].parents[1]
    assert [str(jar.relative_to(directory)) for jar in jars] == list(CONTENT)
    assert all(jar.is_file() for jar in jars)
    assert {path.name for path in cache.iterdir()} == {directory.name, "lock"}


def test_the_second_time_needs_neither_java_nor_network(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve(registry.lock)
    registry.fail()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    assert resolve(registry.lock) == first
    assert registry.download_count == 1


def test_another_lock_is_another_download(registry: Registry) -> None:
    first = resolve(registry.lock)
    lock = registry.lock / "SHA256SUMS"
    lock.write_text("".join(lock.read_text().splitlines(keepends=True)[1:]))

    second = resolve(registry.lock)

    assert not set(second) & set(first)
    assert len(second) == 2


def test_a_flipped_byte_in_the_cache_is_found_and_the_jar_named(registry: Registry) -> None:
    jars = resolve(registry.lock)
    jars[2].write_text("kafka d")

    with pytest.raises(EnvironmentUnfitError, match=r"kafka/c-3\.0\.jar has the SHA-256") as raised:
        resolve(registry.lock)

    assert "spark/" not in raised.value.message
    assert str(jars[0].parents[1]) in raised.value.hint


def test_a_jar_missing_from_the_cache_is_named(registry: Registry) -> None:
    jars = resolve(registry.lock)
    jars[1].unlink()

    with pytest.raises(EnvironmentUnfitError, match=r"spark/b-2\.0\.jar is missing"):
        resolve(registry.lock)


def test_a_jar_whose_time_alone_changed_is_fine(registry: Registry) -> None:
    jars = resolve(registry.lock)
    jars[0].touch()

    assert resolve(registry.lock) == jars


def test_a_wrong_jar_from_the_registry_is_named_and_not_cached(registry: Registry) -> None:
    (registry.remote / "spark/a-1.0.jar").write_text("something else")

    with pytest.raises(EnvironmentUnfitError, match=r"spark/a-1\.0\.jar has the SHA-256"):
        resolve(registry.lock)

    (registry.remote / "spark/a-1.0.jar").write_text("spark a")
    assert len(resolve(registry.lock)) == 3


def test_a_jar_that_the_registry_leaves_out_is_named(registry: Registry) -> None:
    (registry.remote / "kafka/c-3.0.jar").unlink()

    with pytest.raises(EnvironmentUnfitError, match=r"kafka/c-3\.0\.jar is missing"):
        resolve(registry.lock)


def test_a_failed_download_shows_the_last_lines_and_how_to_use_a_mirror(registry: Registry) -> None:
    registry.fail()

    with pytest.raises(EnvironmentUnfitError, match="SERVER ERROR: no such host") as raised:
        resolve(registry.lock)

    assert "SAVEPOINTS_IVY_SETTINGS=" in raised.value.hint


def test_a_mirror_is_a_setting(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror.xml"
    monkeypatch.setenv("SAVEPOINTS_IVY_SETTINGS", str(mirror))
    with pytest.raises(EnvironmentUnfitError, match=r"mirror\.xml, which is not a file"):
        resolve(registry.lock)

    mirror.touch()
    resolve(registry.lock)

    assert f"-settings {mirror}" in registry.downloads.read_text()
