"""A savepoint that cannot be taken leaves nothing of itself, above all not on a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.errors import NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from tests.outputs import tables
from tests.samples import contents, take, unpack

# Run where this user may mount, with a disk of its own of two megabytes.
ON_A_SMALL_DISK = """
import json, shutil, sys
from pathlib import Path
from savepoints.errors import SavepointsError
from savepoints.handle import Store
from savepoints.io import Location
from tests.samples import take

disk, live = Path(sys.argv[1]), Location.of(sys.argv[2])
store = Store.at(str(disk / "store")).make()
# Room for the commits of the tables, and not for the files as well.
(disk / "others").write_bytes(bytes(shutil.disk_usage(disk).free - 1_110_000))
try:
    take(store, live)
    said = ""
except SavepointsError as error:
    said = error.message
left = [str(one) for one in disk.rglob("*") if one.is_file()]
print(json.dumps({"said": said, "left": left}))
"""


def of_savepoints(store: Store) -> dict[str, bytes]:
    found = contents(store.root)
    return {path: data for path, data in found.items() if path.startswith(("files/", "savepoints"))}


def test_trap_files_were_copied_before_a_full_disk_was_seen(
    on_local: Location, tmp_path: Path
) -> None:
    unpack("rocksdb", on_local / "live")
    disk = tmp_path / "disk"
    (disk / "store").mkdir(parents=True)
    mounted = 'mount -t tmpfs -o size=2m tmpfs "$1" && mkdir "$1/store" && shift && exec "$@"'
    alone = ("unshare", "--mount", "sh", "-c", mounted, "small-disk", str(disk))
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk")

    words = (sys.executable, "-c", ON_A_SMALL_DISK, str(disk), f"{on_local}/live")
    done = subprocess.run([*alone, *words], capture_output=True, text=True, check=True)

    found = json.loads(done.stdout.splitlines()[-1])
    assert f"the disk that holds {disk}/store has too little free space" in found["said"]
    assert not [one for one in found["left"] if "/files/c8" in one and "/leases/" not in one]
    assert not [one for one in found["left"] if "/savepoints/" in one]


def test_trap_what_was_copied_stayed_when_an_output_was_refused(
    on_local: Location, local_store: Store
) -> None:
    """What another savepoint shares stays, of course."""
    live, table = unpack("rocksdb", on_local / "live"), str(on_local / "rows")
    take(local_store, live, batch_id=1)
    tables.append(table, {"n": [1]}, "nobody-s", 3)
    before = of_savepoints(local_store)

    with pytest.raises(NotAlignedError):
        take(local_store, live, batch_id=3, outputs={"rows": table})

    assert of_savepoints(local_store) == before
