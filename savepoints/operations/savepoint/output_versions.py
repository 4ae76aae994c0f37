"""Which version of each output belongs to a batch."""

from __future__ import annotations

from collections.abc import Mapping

from savepoints.checkpoint.cut import CutFiles
from savepoints.config.settings import QuerySettings
from savepoints.errors import NotFoundError
from savepoints.io import in_parallel
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id


def outputs_of(
    query: str,
    generation: int,
    files: CutFiles,
    outputs: Mapping[str, str],
    bound: QuerySettings | None = None,
) -> tuple[OutputVersion, ...]:
    """Find the version of each output that belongs to a batch."""

    def find(item: tuple[str, str]) -> OutputVersion:
        name, uri = item
        ids = writers(query, name, generation, files.query_id, bound)
        try:
            return batch_version.version_of_batch(name, uri, ids, files.cut.batch_id)
        except NotFoundError as error:
            error.hint = (
                f"correct the URI of the output {name}; if only an older savepoint names it, omit "
                "it with --outputs none"
            )
            raise

    return tuple(in_parallel(find, list(outputs.items())))


def writers(
    query: str, output: str, generation: int, query_id: str, bound: QuerySettings | None
) -> list[str]:
    """Return the transaction ids under which a generation of a query may write an output.

    `run` writes under `<query>/<output>/<generation>`, Delta's own sink under the query's id, and
    what the user writes in `foreachBatch` under an id that the settings name.
    """
    own_ids = bound.app_ids if bound else {}
    named = [own_ids[output]] if output in own_ids else []
    return [*named, app_id(query, output, generation), query_id]
