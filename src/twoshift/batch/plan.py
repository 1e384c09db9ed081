"""A job's frozen plan: what is read, what the model is, and how the work is cut; and what a resume may not change."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from twoshift.batch.inputs import InputFile, Piece
from twoshift.batch.piece_settings import pieces_of
from twoshift.batch.setting_values import Mark
from twoshift.batch.settings import JobSettings
from twoshift.declare import declared
from twoshift.decodable import decodable
from twoshift.errors import Broken, InvalidInput
from twoshift.llm_ports import QualityReport
from twoshift.pointers import check_format
from twoshift.ports import Blobs, RuntimeInfo
from twoshift.registry.names import parse_ref
from twoshift.types import LoadedAdapter

__all__ = [
    "Plan",
    "PlannedAdapter",
    "PlannedModel",
    "RowFigures",
    "check_same_model",
    "check_same_weights",
    "described_shard",
    "part_location",
    "plan_location",
    "read_plan",
    "same_files",
    "weights_of",
]

_FORMAT = 1
_NAMED_FILES = 3


class PlannedAdapter(msgspec.Struct, frozen=True):
    """An adapter of the model."""

    name: str
    path: str
    checksum: str


class PlannedModel(msgspec.Struct, frozen=True):
    """What decides an answer; where it runs does not."""

    name: str
    checksum: str
    precision: str
    outputs: tuple[str, ...]
    parity: float | None = None  # of a lossy precision: with full precision, on the job's first rows
    is_ordered: bool = False  # whether a row's values have an order and no names
    adapters: tuple[PlannedAdapter, ...] = ()  # that its rows use, beside the model itself
    quality: QualityReport | None = None  # of a language model: what let the job start
    features: tuple[str, ...] = ()  # of a tabular model, in order
    classes: dict[str, tuple[str, ...]] = {}  # of outputs with a number for each class

    @classmethod
    def of(cls, info: RuntimeInfo, adapters: Sequence[str] = ()) -> PlannedModel:
        """The model as it was loaded, with the adapters of those names; raises InvalidInput where it has not all."""
        used = tuple(PlannedAdapter(name, each.path, each.checksum) for name, each in _loaded(info, adapters))
        return cls(
            info.model,
            info.checksum,
            info.precision,
            info.outputs,
            is_ordered=info.is_ordered,
            adapters=used,
            features=info.features,
            classes=dict(info.classes),
        )

    @property
    def weights(self) -> str:
        """As `weights_of`."""
        return "+".join([self.checksum, *(each.checksum for each in self.adapters)])


class RowFigures(NamedTuple):
    """What a row takes, as measured on the first rows."""

    seconds: float  # of a device
    input_bytes: float = 100.0
    host_s: float = 0.0  # for preparing, where the model's calls run on the same cores


@decodable
class Plan(msgspec.Struct, frozen=True):
    """Written once, before the first shard; everything that a worker needs besides the model."""

    format: int
    model: PlannedModel
    settings: JobSettings  # as the job was begun
    files: tuple[InputFile, ...]
    shards: tuple[tuple[Piece, ...], ...]
    rows: int | None  # where the formats tell
    output_schema: str  # Arrow's, as base64: kept columns, results, error
    seconds_per_row: float  # of a device, as measured on the first rows
    row_bytes: float = 100.0  # of them
    retry_of: str | None = None  # the job whose parts without errors were taken over
    folder: str = ""  # where the command was run: relative names of files begin there
    types: dict[str, str] = {}  # what columns become for the model; as they were found at the start
    sources: tuple[InputFile, ...] = ()  # of a query: the files are its result
    first_shard: int = 0  # of a stream's window: the number of its only shard
    host_s_per_row: float = 0.0  # for preparing, where the model's calls run on the same cores
    recheck_s: float = 0.0  # for the comparison with live answers at the end, where it is long

    @classmethod
    def make(
        cls,
        settings: JobSettings,
        model: PlannedModel,
        files: tuple[InputFile, ...],
        shards: tuple[tuple[Piece, ...], ...],
        schema: pa.Schema,
        row: RowFigures,
        folder: str = "",
        types: dict[str, str] | None = None,
    ) -> Plan:
        """A plan for these shards."""
        counts = [piece.rows for shard in shards for piece in shard]
        rows = None if None in counts else sum(count or 0 for count in counts)
        encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return cls(
            _FORMAT, model, settings, files, shards, rows, encoded, row.seconds, row.input_bytes, folder=folder,
            types=types or {}, host_s_per_row=row.host_s,
        )  # fmt: skip

    def with_files(self, files: Sequence[InputFile] | None) -> Plan:
        """The same with its files as they are now: moved, or with another time of change."""
        return self if files is None else msgspec.structs.replace(self, files=tuple(files))

    @property
    def schema(self) -> pa.Schema:
        """Every part's columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.output_schema)))

    @property
    def bytes_per_s(self) -> float:
        """Of the input, by one worker, as far as the first rows tell."""
        if self.rows:
            row_bytes = sum(piece.bytes for shard in self.shards for piece in shard) / self.rows
        else:
            row_bytes = self.row_bytes
        return max(1e-9, row_bytes / self.worker_s_per_row)

    @property
    def worker_s_per_row(self) -> float:
        """What a row takes of a worker, as far as the first rows tell."""
        return self.seconds_per_row + self.host_s_per_row

    @property
    def is_stream(self) -> bool:
        """Whether it is that of a stream, whose windows have their own input; a job has files."""
        return not self.files

    def pieces(self, shard: int) -> tuple[Piece, ...]:
        """What a shard reads."""
        return self.shards[shard - self.first_shard]

    def shard_rows(self, shard: int) -> int | None:
        """How many rows its part has; None where nobody has counted them, as in a stream."""
        if self.is_stream:
            return None
        counts = [piece.rows for piece in self.shards[shard]]
        return None if None in counts else sum(count or 0 for count in counts)

    def shard_bytes(self, shard: int) -> int:
        """How much of the input a shard is: what work is counted in before rows are known."""
        return max(1, sum(piece.bytes for piece in self.shards[shard]))


def plan_location(output: str) -> str:
    """Where a job's plan lies."""
    return f"{output.rstrip('/')}/_twoshift/plan.json"


def part_location(plan: Plan, shard: int) -> str:
    """A shard's part has one name for ever: whoever creates it first has committed the shard."""
    output = plan.settings.output.rstrip("/")
    return f"{output}/part-{shard:06d}.{plan.settings.output_format}"


def described_shard(plan: Plan, shard: int) -> str:
    """What it reads."""
    named = itertools.islice((f"{plan.files[p.file].location} [{p.start}:{p.stop}]" for p in plan.shards[shard]), 3)
    return ", ".join(named)


def read_plan(blobs: Blobs, output: str) -> Plan | None:
    """The plan of an output folder, None where there is none; raises Broken where it cannot be read."""
    data = blobs.read(plan_location(output))
    if data is None:
        return None
    check_format(data, plan_location(output), _FORMAT)
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, InvalidInput) as error:
        if "unknown field" in str(error):  # a setting that came later
            raise Broken(
                f"{plan_location(output)} was written by a newer version of Twoshift ({error}): resume the job "
                "with that version, or use another output folder"
            ) from error
        raise Broken(
            f"{plan_location(output)} is damaged ({error}); start the job again with another output folder"
        ) from error
    if plan.format != _FORMAT:
        raise Broken(
            f"{plan_location(output)} was written by another version of Twoshift (in format {plan.format}; this "
            f"version reads format {_FORMAT}): resume the job with that version, or use another output folder"
        )
    if (what := _damage(plan)) is not None:
        raise Broken(f"{plan_location(output)} is damaged ({what}); start the job again with another output folder")
    return plan


def _damage(plan: Plan) -> str | None:
    """What no plan of ours can have."""
    pieces = [(piece.file, piece.start, piece.stop) for shard in plan.shards for piece in shard]
    if any(not 0 <= file < len(plan.files) for file, _, _ in pieces):
        return "a shard refers to a file that is not listed"
    if len(set(pieces)) < len(pieces):
        return "two shards contain the same rows"
    if not plan.seconds_per_row > 0:
        return "the predicted time of some rows is zero"
    try:
        _ = plan.schema
    except (pa.ArrowException, ValueError) as error:
        return f"the schema cannot be read: {error}"
    return None


def same_files(
    plan: Plan, settings: JobSettings, files: tuple[InputFile, ...], content: Content, is_retry: bool = False
) -> tuple[InputFile, ...]:
    """The plan's files by their names of today; raises InvalidInput that names what differs from the job as begun."""
    was, new = _placed(plan, files)
    differences = [*_changed_settings(plan.settings, settings, is_retry), *_changed_files(was, new, content)]
    _refuse(plan, settings, differences, is_retry)
    return tuple(msgspec.structs.replace(new[place], fingerprint=file.fingerprint) for place, file in was.items())


def check_same_model(plan: Plan, settings: JobSettings, model: PlannedModel, is_retry: bool = False) -> None:
    """Raises InvalidInput that names what differs from the model with which the job was begun.

    Where errors are retried a user's own class may be another by now: that is what it was mended for. Weights may
    not, because the vectors of two models do not go together.
    """
    _refuse(plan, settings, list(_changed_model(plan.model, model, is_retry)), is_retry)


def weights_of(model: RuntimeInfo, adapters: Sequence[str]) -> str:
    """The checksums of all that decides the answers of a job's rows; raises InvalidInput."""
    return "+".join([model.checksum, *(each.checksum for _, each in _loaded(model, adapters))])


def check_same_weights(worker: str, model: RuntimeInfo, adapters: Sequence[str], weights: str) -> None:
    """Raises Broken where a worker has loaded another model than the job runs with, a user's class included."""
    if (found := weights_of(model, adapters)) != weights:
        named = " and ".join([model.model, *adapters])
        what = f"worker {worker} has loaded different weights of {named}: checksum {found}, expected {weights}"
        raise Broken(f"{what}; put the same files on every machine, then run the same command again")


def _loaded(model: RuntimeInfo, names: Sequence[str]) -> list[tuple[str, LoadedAdapter]]:
    for name in names:
        if name not in model.adapters:
            known = f"the adapters {', '.join(sorted(model.adapters))}" if model.adapters else "no adapters"
            raise InvalidInput("adapter", name, f"an adapter of {model.model}, which has {known}")
    return [(name, model.adapters[name]) for name in names]


def _refuse(plan: Plan, settings: JobSettings, differences: list[str], is_retry: bool) -> None:
    if not differences:
        return
    ways = "run the whole job again with a new output folder" if is_retry else "use another output folder"
    changed = f"Changed since that job began: {'; '.join(differences)}"
    accepted = f"the same job as in {plan.settings.output}. {changed}. Undo this change, or {ways}"
    raise InvalidInput("output", settings.output, accepted)


def _changed_model(before: PlannedModel, now: PlannedModel, is_retry: bool) -> Iterator[str]:
    """By its content: the same weights may be called by another name, or lie elsewhere."""
    if _class_of(before.name) != _class_of(now.name):
        yield f"the model's name was {before.name}, now {now.name}"
    for name in ("precision",) if is_retry and _class_of(now.name) else ("checksum", "precision"):
        was, new = getattr(before, name), getattr(now, name)
        if was != new:
            yield _other_version(before, now) or f"the model's {name} was {was}, now {new}"
    was, new = ([each.checksum for each in model.adapters] for model in (before, now))
    if was != new:
        yield f"the checksum of the adapter was {' and '.join(was) or 'none'}, now {' and '.join(new) or 'none'}"


def _other_version(before: PlannedModel, now: PlannedModel) -> str:
    """What has happened to a registered model; empty where it is none, or the same."""
    was, new = parse_ref(before.name), parse_ref(now.name)
    if was is None or new is None or was == new or None in (was.version, new.version):
        return ""
    return (
        f"the job began with {was}, and the model is now {new}; to finish the job, use {was}, or deploy {was} on "
        "the server again"
    )


def _class_of(name: str) -> str:
    """Of a file that holds several."""
    return name.rpartition(":")[2] if ".py:" in name else ""


def _changed_settings(before: JobSettings, now: JobSettings, is_retry: bool) -> Iterator[str]:
    fixed = {Mark.ROWS} if is_retry else {Mark.ROWS, Mark.SHARDS}  # the shards of a retry are cut already
    for name, each in declared(JobSettings).items():
        was, new = getattr(before, name), getattr(now, name)
        if was != new and fixed.intersection(each.marks):
            yield f"{name} was {_shown(was)}, now {_shown(new)}"
    was, new = pieces_of(before.piece), pieces_of(now.piece)
    if was != new:
        yield f"the number of pieces was {_shown(was)}, now {_shown(new)} (--piece)"


_Files = dict[str, InputFile]  # by their place
Content = Callable[[InputFile], str]  # what a file's fingerprint is now


def _placed(plan: Plan, files: tuple[InputFile, ...]) -> tuple[_Files, _Files]:
    """The files then and now: by their names, where those are the same, and else by where they lie on this machine."""
    was, new = ({file.location: file for file in each} for each in (plan.files, files))
    if was.keys() == new.keys() or not plan.folder:
        return was, new
    return (
        {_place(name, plan.folder): file for name, file in was.items()},
        {_place(name, ""): file for name, file in new.items()},
    )


def _place(location: str, folder: str) -> str:
    return location if "://" in location else os.path.abspath(os.path.join(folder, location))  # noqa: PTH100, PTH118


def _changed_files(before: _Files, now: _Files, content: Content) -> Iterator[str]:
    gone = [file.location for place, file in before.items() if place not in now]
    added = [file.location for place, file in now.items() if place not in before]
    both = ((file, now[place]) for place, file in before.items() if place in now)
    told = ((new.location, _change(was, new, content)) for was, new in both)
    changed = [f"{location} ({what})" for location, what in told if what]
    for what, names in (("are missing", gone), ("are new", added), ("have changed", changed)):
        if names:
            more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
            yield f"these input files {what}: {', '.join(names[:_NAMED_FILES])}{more}"
    if not (gone or added or changed) and list(before) != list(now):
        yield "the input files are in a different order"


def _change(was: InputFile, new: InputFile, content: Content) -> str:
    """What is another in a file; empty where its content is the same, whenever it was written."""
    if was.identity == new.identity:
        return ""
    if was.size_bytes != new.size_bytes:
        return f"{was.size_bytes:,} bytes before, {new.size_bytes:,} bytes now"
    if not was.fingerprint:
        return "of the same size, with a different modification time or ETag"
    return "" if content(new) == was.fingerprint else "of the same size, with different content"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and value:
        return ",".join(f"{name}={kind}" for name, kind in value.items())
    return ", ".join(value) if isinstance(value, tuple) and value else str(value or "not given")
