"""Amazon's settings as its own tools find them, once, for obstore, deltalake and Spark alike.

From the environment first, and else from the profile: `AWS_PROFILE` in `~/.aws/config`. Sources:
AWS SDKs and Tools Reference Guide, "Shared config and credentials files" and "Service-specific
endpoints".
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import boto3

# Where profiles are, and what names another file.
_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}
# What a session goes by; with other values it is another one.
_GOES_BY = ("AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", *_FILES)


def session() -> boto3.Session:
    """Return the session, which renews its credentials and is slow to create."""
    return _session(*map(os.environ.get, _GOES_BY))


def region() -> str | None:
    """Return the region; None where nothing names one."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or (session().region_name if _has_profiles() else None)


def endpoint() -> str | None:
    """Return where S3 is; None for Amazon's own."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return named or (_of_profile(*map(os.environ.get, _GOES_BY)) if _has_profiles() else None)


def _has_profiles() -> bool:
    """Say whether there is a file of profiles: without one, nothing slow has to be imported."""
    files = (os.environ.get(name) or usual for name, usual in _FILES.items())
    # pathlib raises where nobody has a home, as in a container with a user of its own.
    return any(Path(os.path.expanduser(file)).exists() for file in files)  # noqa: PTH111


@lru_cache(maxsize=8)
def _session(region: str | None, *_goes_by: str | None) -> boto3.Session:
    """Return a session.

    Args:
        region: From `AWS_REGION`, which boto3 does not read; every other tool of AWS does, first.
    """
    import boto3  # 0.2 s that a local store need not pay

    return boto3.Session(region_name=region)


@lru_cache(maxsize=8)
def _of_profile(*_goes_by: str | None) -> str | None:
    from botocore.session import get_session

    found: Any = get_session()
    profile = found.get_scoped_config()
    ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or profile.get(
        "ignore_configured_endpoint_urls", ""
    )
    if ignored.lower() == "true":
        return None
    services = found.full_config.get("services", {}).get(profile.get("services"), {})
    named = services.get("s3", {}).get("endpoint_url") or profile.get("endpoint_url")
    return None if named is None else str(named)
