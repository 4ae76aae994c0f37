"""Finding Java, with scripts that claim to be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.errors import EnvironmentUnfitError
from savepoints.local.java import find_java


def write_java(home: Path, version: str) -> Path:
    """Write a `java` that answers like a real one of that version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        "echo 'Property settings:' >&2\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.version = {version}' >&2\n"
        f"echo '    java.version.date = 2024-01-16' >&2\n"
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize("version", ["17", "17.0.15", "17-ea", "21.0.2", "25.0.1"])
def test_java_on_the_path_is_found(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = write_java(tmp_path / "jdk", version)
    monkeypatch.setenv("PATH", str(executable.parent))

    java = find_java()

    assert (java.executable, java.home, java.version) == (executable, tmp_path / "jdk", version)


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = write_java(tmp_path / "on-path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    in_home = write_java(tmp_path / "home", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert find_java().executable == in_home


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392", "16.0.2"])
def test_old_java_is_refused_with_its_version_and_what_to_install(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = write_java(tmp_path / "jdk", version)
    monkeypatch.setenv("PATH", str(executable.parent))

    with pytest.raises(EnvironmentUnfitError) as raised:
        find_java()

    assert f"Java {version} ({executable}) is too old: 17" in raised.value.message
    assert "openjdk-17-jre-headless" in raised.value.hint


def test_no_java_is_an_error_that_says_what_to_install() -> None:
    with pytest.raises(EnvironmentUnfitError, match="Java found in the PATH") as raised:
        find_java()

    assert "brew install openjdk@17" in raised.value.hint
    assert "JAVA_HOME" in raised.value.hint


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    with pytest.raises(EnvironmentUnfitError, match=f"JAVA_HOME={tmp_path / 'gone'}"):
        find_java()


def test_a_java_that_only_prints_an_error_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = write_java(tmp_path / "stub", "17.0.15")
    executable.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", str(executable.parent))

    with pytest.raises(EnvironmentUnfitError, match="no working Java found"):
        find_java()
