"""Finding a Java that can run Spark and Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError

MINIMUM_VERSION = 17

_HINT = (
    f"install Java {MINIMUM_VERSION} or newer, for example with"
    f" `apt-get install openjdk-{MINIMUM_VERSION}-jre-headless` or"
    f" `brew install openjdk@{MINIMUM_VERSION}`, or set JAVA_HOME to the directory of one"
)


@dataclass(frozen=True)
class Java:
    """A Java that is new enough.

    Attributes:
        home: What JAVA_HOME has to be for others to find the same Java.
    """

    executable: Path
    home: Path
    version: str


def find_java() -> Java:
    """Find Java where Spark will look for it: in JAVA_HOME, then on the PATH.

    Raises:
        EnvironmentUnfitError: If there is none, it does not run, or it is too old.
    """
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        executable: str | None = str(Path(java_home) / "bin" / "java")
        place = f"JAVA_HOME={java_home}"
    else:
        executable = shutil.which("java")
        place = "the PATH"
    properties = _properties(executable) if executable else {}
    if executable is None or not properties:
        message = f"no working Java found in {place}"
        raise EnvironmentUnfitError(message, hint=_HINT, looked_in=place)
    version = properties["java.version"]
    if _major(version) < MINIMUM_VERSION:
        message = f"Java {version} ({executable}) is too old: {MINIMUM_VERSION} or newer is needed"
        raise EnvironmentUnfitError(message, hint=_HINT, found=version, java=executable)
    return Java(Path(executable), Path(properties["java.home"]), version)


def _properties(executable: str) -> dict[str, str]:
    """Ask Java for its system properties; empty if it does not run or says nothing."""
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        # macOS has a /usr/bin/java that only says that there is no Java.
        return {}
    found = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+)$", done.stderr, re.MULTILINE))
    return found if found.keys() == {"java.home", "java.version"} else {}


def _major(version: str) -> int:
    """Return 17 for `17.0.15` and `17-ea`, and 8 for `1.8.0_392`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 else numbers[0]
