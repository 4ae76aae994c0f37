"""HDFS: a NameNode and a DataNode of Hadoop, on this machine.

A module that says `place = second_s3.place` runs its tests on it at night. The servers' classes are
in one jar, which is downloaded once; what they need beside it is among PySpark's jars.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

from savepoints.local.jars import pyspark_directory, resolve
from savepoints.local.java import find_java
from savepoints.local.service import Launch, free_ports

_JARS = Path(__file__).parent / "hdfs_jars"
_STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
_PAGE = "dfs.namenode.http-address"
_ANY_PORT = "127.0.0.1:0"


def name_node(directory: Path) -> Launch:
    """Give the NameNode its ports, and both servers their settings; its endpoint has no scheme."""
    port, page = free_ports(2)
    address = f"127.0.0.1:{port}"
    settings = {
        "fs.defaultFS": f"hdfs://{address}",
        "dfs.namenode.name.dir": (directory / "names").as_uri(),
        "dfs.datanode.data.dir": (directory / "blocks").as_uri(),
        "dfs.replication": "1",
        _PAGE: f"127.0.0.1:{page}",
        "dfs.datanode.address": _ANY_PORT,
        "dfs.datanode.http.address": _ANY_PORT,
        "dfs.datanode.ipc.address": _ANY_PORT,
    }
    _configure(directory, settings)
    command = _server(directory, "namenode.NameNode")
    if not (directory / "names").exists():
        subprocess.run([*command, "-format", "-nonInteractive"], check=True, capture_output=True)
    return Launch(command, address, partial(_has_data_nodes, f"127.0.0.1:{page}", 0))


def data_node(directory: Path) -> Launch:
    """Launch the DataNode of the NameNode that was launched there."""
    found = ET.parse(_site(directory)).getroot()
    page = next(one.findtext("value") for one in found if one.findtext("name") == _PAGE)
    assert page is not None
    return Launch(_server(directory, "datanode.DataNode"), page, partial(_has_data_nodes, page, 1))


def _configure(directory: Path, settings: Mapping[str, str]) -> None:
    root = ET.Element("configuration")
    for name, value in settings.items():
        one = ET.SubElement(root, "property")
        ET.SubElement(one, "name").text = name
        ET.SubElement(one, "value").text = value
    site = _site(directory)
    site.parent.mkdir(exist_ok=True)
    ET.ElementTree(root).write(site)


def _site(directory: Path) -> Path:
    return directory / "conf" / "hdfs-site.xml"


def _server(directory: Path, name: str) -> tuple[str, ...]:
    jars = (str(_site(directory).parent), *map(str, resolve(_JARS)))
    path = ":".join((*jars, f"{pyspark_directory()}/jars/*"))
    java = str(find_java().executable)
    return (java, "-Xmx256m", "-cp", path, f"org.apache.hadoop.hdfs.server.{name}")


def _has_data_nodes(page: str, wanted: int) -> bool:
    """Return True if the NameNode answers and so many DataNodes have come to it."""
    connection = http.client.HTTPConnection(page, timeout=5)
    try:
        connection.request("GET", _STATE)
        beans = json.loads(connection.getresponse().read())["beans"]
    except (http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return bool(beans) and beans[0]["NumLiveDataNodes"] >= wanted
