"""The table of a job's answers: built from its parts, at the job's end or by the server that serves them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import msgspec

from twoshift.answers.encoding import encoded_rows, key_kind, layouts_of
from twoshift.answers.generations import FolderTables, Generation, table_place
from twoshift.answers.redis_place import is_redis, redis_place
from twoshift.answers.redis_writing import RedisTables, RedisWriter
from twoshift.answers.writing import TableWriter
from twoshift.batch.answer_settings import check_servable
from twoshift.batch.finish import read_runs
from twoshift.batch.part_file import Seal, seal_of
from twoshift.batch.part_records import Listing, list_output, read_record
from twoshift.batch.plan import Plan, part_location, plan_location, read_plan
from twoshift.batch.result_columns import ERROR
from twoshift.batch.sinks.known import SINKS
from twoshift.batch.verify import PartCheck, PartState, refuse_damaged
from twoshift.errors import InvalidInput, TryLater
from twoshift.ports import Blobs

__all__ = ["JobAnswers", "answers_for", "build_answers"]

_NAME_DIGITS = 16
_NOT_ENDED_S = 2.0
_PART = re.compile(r"part-(\d+)(?:-(\d+))?\.\w+")  # of a stream: of one window, or of several that were merged


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    made_unix_s: float
    told: str  # what another content would make another
    seals: Set[Seal]


class JobAnswers:
    """The answers of one output folder by one of its columns."""

    def __init__(self, plan: Plan, key: str, place: str, blobs_for: Callable[[str], Blobs], field: str = "key") -> None:
        """Raises InvalidInput where they cannot be served by that column; the field is what the user has named."""
        self._plan, self._key = plan, key
        self._output = blobs_for(plan.settings.output)
        self._tables = (
            RedisTables(redis_place(place, field)) if is_redis(place) else FolderTables(blobs_for(place), place)
        )
        check_servable(plan.settings, field, key)
        schema = plan.schema
        if key not in schema.names or key == ERROR:
            kept = ", ".join(plan.settings.keep) or "the job copied none"
            raise InvalidInput(field, key, f"a column that the job copied to the output with --keep ({kept})")
        self._kind = key_kind(key, schema.field(key).type, field)
        kept = {*plan.settings.keep, ERROR}
        self._columns = layouts_of(schema, [name for name in schema.names if name not in kept], field)

    @property
    def is_done(self) -> bool:
        """Whether its generation is or was the current one."""
        return self._tables.is_switched(self._name(self._parts()))

    def commit(self, tell: Callable[[str], None], verify: bool = False) -> Generation:
        """Build and switch, each once; whoever was killed on the way is repeated by the next run.

        `verify`: the parts are read from end to end before; raises Broken where one is damaged.
        """
        parts = self._parts()
        return self._tables.commit(
            self._asked(self._name(parts)), lambda writer: self._fill(writer, parts, tell, verify)
        )

    def _fill(
        self, writer: TableWriter | RedisWriter, parts: Sequence[_Part], tell: Callable[[str], None], verify: bool
    ) -> None:
        folder, rows = self._plan.settings.output, 0
        sink, schema = SINKS[self._plan.settings.output_format], self._plan.schema
        for number, part in enumerate(parts):
            if verify:
                refuse_damaged(folder, self._damage(part), self._plan.is_stream)
            with self._output.open(f"{folder}/{part.name}") as file:
                for batch in sink.batches(file, schema):
                    writer.add(encoded_rows(batch, self._key, self._columns, writer.left_out), part.made_unix_s)
                    rows += len(batch)
                    tell(f"Building the table of answers: part {number + 1:,} of {len(parts):,}, {rows:,} rows")

    def _damage(self, part: _Part) -> list[PartCheck]:
        """What is wrong with it, by every byte; nothing where an earlier release wrote it without a checksum."""
        with self._output.open(f"{self._plan.settings.output}/{part.name}") as file:
            is_whole = not part.seals or seal_of(file) in part.seals
        return (
            []
            if is_whole
            else [
                PartCheck(part.name, PartState.DAMAGED, "is damaged: its checksum differs from the recorded checksum")
            ]
        )

    def _parts(self) -> list[_Part]:
        listing = list_output(self._output, self._plan.settings.output)
        earliest_s = self._earliest_unix_s()
        return [self._part(name, listing, earliest_s) for name in _names(self._plan, listing)]

    def _part(self, name: str, listing: Listing, earliest_s: float) -> _Part:
        seals = listing.seals_of(name)
        records = [read_record(self._output, f"{self._plan.settings.output}/{name}", seal) for seal in seals]
        made = [each.began_unix_s for each in records if each is not None and each.began_unix_s]
        told = f"{name} {listing.sizes.get(name)} {listing.checksum(name)} {made}"
        return _Part(name, min(made, default=earliest_s), told, seals)

    def _earliest_unix_s(self) -> float:
        """When the job began, for parts that do not say when they were made: nothing is younger than it is told."""
        folder = self._plan.settings.output
        runs = [each.began_unix_s for each in read_runs(self._output, folder)]
        written = self._output.stat(plan_location(folder))
        return min(runs, default=0.0 if written is None else written.written_s)

    def _name(self, parts: Sequence[_Part]) -> str:
        """The same for the same job with the same parts, whoever builds it."""
        digest = hashlib.sha256(self._output.read(plan_location(self._plan.settings.output)) or b"")
        digest.update(self._key.encode())
        for part in parts:
            digest.update(part.told.encode())
        return digest.hexdigest()[:_NAME_DIGITS]

    def _asked(self, name: str) -> Generation:
        settings, model = self._plan.settings, self._plan.model
        return Generation(
            name=name, key=self._key, kind=self._kind, columns=self._columns, model=model.name,
            checksum=model.weights, precision=model.precision, too_long=settings.too_long,
            prompt_name=settings.prompt_name, text=settings.text, output=settings.output,
        )  # fmt: skip


def _names(plan: Plan, listing: Listing) -> list[str]:
    """The parts in order; of a stream those that are there, without those that were merged into another one."""
    if plan.shards:
        return [part_location(plan, shard).rpartition("/")[2] for shard in range(len(plan.shards))]
    matches = [match for name in listing.sizes if (match := _PART.fullmatch(name))]
    spans = sorted((int(each[1]), -int(each[2] or each[1]), each[0]) for each in matches)
    kept, upto = list[str](), -1
    for _, last, name in spans:
        if -last > upto:
            kept.append(name)
            upto = -last
    return kept


def answers_for(plan: Plan, blobs_for: Callable[[str], Blobs]) -> JobAnswers | None:
    """A job's table, where it asks for one; raises InvalidInput where it cannot have it."""
    settings = plan.settings
    if settings.answer_key is None:
        return None
    place = table_place(settings.output, settings.answer_key, settings.answer_table)
    return JobAnswers(plan, settings.answer_key, place, blobs_for, "answer_key")


def build_answers(
    output: str, key: str, place: str, blobs_for: Callable[[str], Blobs], tell: Callable[[str], None]
) -> Generation:
    """The table of a finished job's output folder, or of a stream's as far as it is.

    Raises InvalidInput where it is none, TryLater before the job's end, Broken where a part is damaged.
    """
    blobs, folder = blobs_for(output), output.rstrip("/")
    plan = read_plan(blobs, folder)
    if plan is None:
        raise InvalidInput(
            "precomputed",
            output,
            "the output folder of a job, or a location that was given to `twoshift run --answer-table`",
        )
    if plan.shards and blobs.stat(f"{folder}/_SUCCESS") is None:
        raise TryLater(f"the job in {folder} has not ended", _NOT_ENDED_S)
    plan = msgspec.structs.replace(plan, settings=msgspec.structs.replace(plan.settings, output=folder))
    return JobAnswers(plan, key, place, blobs_for).commit(tell, verify=True)
