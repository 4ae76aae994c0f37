"""One place has one URI, however it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.errors import IncompatibleError, UsageError
from savepoints.uri import Uri, lies_in, spelled


def test_trap_a_link_leads_to_the_same_place_in_any_form(tmp_path: Path) -> None:
    """As `file:///` it was another place than without: two stores, and two outputs."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")

    for text in (f"{tmp_path}/link/x", f"file:{tmp_path}/link/x", f"file://{tmp_path}/link/x"):
        assert str(Uri.parse(text)) == f"{tmp_path.resolve()}/lake/x"


@pytest.mark.parametrize(
    "text", ["file://localhost/lake", "file://lake/x", "file://~/x", "file://"]
)
def test_trap_the_host_of_a_local_uri_is_a_directory(text: str) -> None:
    """Of `file://localhost/lake` a directory /localhost was made; Spark refuses each of these."""
    with pytest.raises(UsageError, match="does not name a local path") as refused:
        Uri.parse(text)

    assert "write file:///" in refused.value.hint


@pytest.mark.parametrize("text", ["dbfs:/lake", "wasbs:lake", "orders:2026"])
def test_trap_the_hint_is_to_write_a_scheme_that_is_not_supported(text: str) -> None:
    """`write dbfs://lake` was followed by a refusal of just that."""
    with pytest.raises(IncompatibleError, match=f"of {text} is not supported") as refused:
        Uri.parse(text)

    assert "./ if it has a colon" in refused.value.hint
    assert Uri.parse(f"./{text}").scheme == "file"


def test_trap_a_tilde_is_the_user_s_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A directory named ~ was made where the command was typed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert str(Uri.parse("~/lake")) == str(tmp_path / "lake")
    assert str(Uri.parse("./~/lake")) == str(tmp_path / "~" / "lake")
    with pytest.raises(UsageError, match="no user's directory is known for '~nobody-of-this-name"):
        Uri.parse("~nobody-of-this-name/lake")


@pytest.mark.parametrize("text", ["main.sales.orders", "gs://bucket/x", "s3://", "jobs.totals:app"])
def test_what_is_no_place_is_compared_as_it_is_written(text: str) -> None:
    assert spelled(text) == text


def test_places_are_compared_in_one_spelling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert {spelled(one) for one in ("s3://b/x", "s3a://b/x/", "s3n://b//x")} == {"s3://b/x"}
    local = ("x", "./x/", f"file:{tmp_path}/x", f"file://{tmp_path}/x")
    assert {spelled(one) for one in local} == {str(tmp_path.resolve() / "x")}


def test_a_place_lies_in_another_one_or_in_its_bucket() -> None:
    assert lies_in("s3a://b/x/y", "s3://b/x/")
    assert lies_in("s3://b/x", "s3://b")
    assert not lies_in("s3://b/xy", "s3://b/x")
    assert not lies_in("s3://a/x/y", "s3://b/x")
