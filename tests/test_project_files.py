"""The files around the package: they say the same as each other, and as what they repeat."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
RELEASE: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())


def test_what_is_checked_before_a_commit_is_what_make_lint_does() -> None:
    (recipe,) = re.findall(
        r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]

    assert [hook["entry"] for hook in hooks] == commands


def test_every_change_has_a_name_that_towncrier_takes() -> None:
    settings = PROJECT["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    files = {path.name for path in (ROOT / settings["directory"]).iterdir()} - {"README.md"}

    assert [
        name for name in files if not re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({kinds})\.md", name)
    ] == []
    assert settings["start_string"] in (ROOT / settings["filename"]).read_text()


def test_the_citation_is_of_this_version_and_licence() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert (cited["version"], cited["license"]) == (VERSION, PROJECT["project"]["license"])
    assert cited["abstract"].rstrip(".") == PROJECT["project"]["description"]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a directory with the files as they are when a version is tagged."""
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "CHANGELOG.md").open("a") as log:
        log.write(f"\n## {VERSION} (2026-11-20)\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").touch()
    return tmp_path


def may_be_released(directory: Path, tag: str) -> bool:
    """Run the step of the workflow that looks, as GitHub does."""
    step = RELEASE["jobs"]["prepared"]["steps"][-1]
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=directory,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def test_a_tag_is_released_if_all_files_say_its_version(released: Path) -> None:
    assert may_be_released(released, f"v{VERSION}")
    assert not may_be_released(released, "v0.0.9")
    assert not may_be_released(released, f"v{VERSION}0")


@pytest.mark.parametrize("name", ["pyproject.toml", "CITATION.cff", "CHANGELOG.md"])
def test_a_tag_is_not_released_if_one_file_says_another_version(released: Path, name: str) -> None:
    file = released / name
    file.write_text(file.read_text().replace(VERSION, "0.0.9"))

    assert not may_be_released(released, f"v{VERSION}")


def test_a_tag_is_not_released_with_changes_that_nobody_collected(released: Path) -> None:
    (released / "changes" / "+one-more.fixed.md").touch()

    assert not may_be_released(released, f"v{VERSION}")


def test_only_the_jobs_that_attest_and_publish_get_an_identity() -> None:
    jobs = RELEASE["jobs"]
    trusted = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}

    assert trusted == {"build", "publish"}
    assert RELEASE["permissions"] == {"contents": "read"}
    assert set(jobs["publish"]["needs"]) == {"tests", "build"}
    assert "secrets." not in str(RELEASE)


@pytest.mark.parametrize("name", ["bug", "wish"])
def test_a_form_has_fields_with_ids_of_their_own(name: str) -> None:
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    fields = [one for one in form["body"] if one["type"] != "markdown"]

    assert {"name", "description", "body"} <= form.keys()
    assert len({one["id"] for one in fields}) == len(fields)
    assert all(one["attributes"]["label"] for one in fields)
    assert any(one.get("validations", {}).get("required") for one in fields)
