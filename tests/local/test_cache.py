"""Where what is downloaded once lies, and what is said where it cannot lie there."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from savepoints import aws
from savepoints.errors import EnvironmentUnfitError
from savepoints.local.cache import cache_directory, filling


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a user of a container: without a home and without a line in its passwd."""

    def nobody(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "SAVEPOINTS_CACHE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)


def test_trap_a_user_without_a_home_got_a_runtime_error(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(EnvironmentUnfitError, match="no home directory") as refused:
        cache_directory()
    assert "SAVEPOINTS_CACHE" in refused.value.hint
    assert aws.region() is None

    monkeypatch.setenv("SAVEPOINTS_CACHE", "/elsewhere")
    assert cache_directory() == Path("/elsewhere")


def test_trap_a_cache_that_cannot_be_written_to_was_an_unexpected_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "jars"

    with (
        pytest.raises(EnvironmentUnfitError, match=f"cannot write to {place}") as refused,
        filling(place),
    ):
        pass

    assert "SAVEPOINTS_CACHE" in refused.value.hint
