"""A stream's plan: frozen from the first rows that can be scored, as a job's is, and checked when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa

from twoshift.batch.device import WorkDevice
from twoshift.batch.kinds.kind import SampleOf
from twoshift.batch.kinds.known import kind_of
from twoshift.batch.plan import Plan, PlannedModel, RowFigures, check_same_model, plan_location, read_plan, same_files
from twoshift.batch.samples import Samples, measured_on
from twoshift.batch.settings import JobSettings
from twoshift.errors import InvalidInput, UnusableRows
from twoshift.ports import Blobs
from twoshift.streams.window import StreamWindow

__all__ = ["checked_plan", "existing_plan", "frozen_plan", "write_plan"]


def existing_plan(output: Blobs, settings: JobSettings) -> Plan | None:
    """The plan of a stream that was begun here; raises InvalidInput where this is another one, or a job."""
    plan = read_plan(output, settings.output)
    if plan is None:
        return None
    if not plan.is_stream:
        raise InvalidInput("output", settings.output, "another folder: this folder contains a job, not a stream")
    if plan.settings.inputs != settings.inputs:
        accepted = f"{plan.settings.inputs[0]}, the source with which the stream in {settings.output} started"
        raise InvalidInput("source", settings.inputs[0], f"{accepted}; for another source, use another output folder")
    same_files(plan, settings, (), lambda _: "")
    return plan


def checked_plan(plan: Plan, settings: JobSettings, device: WorkDevice) -> Plan:
    """With the settings of this run; raises InvalidInput where the model is another one."""
    model = PlannedModel.of(device.info, settings.used_adapters)
    check_same_model(plan, settings, model)
    return msgspec.structs.replace(plan, settings=settings)


def frozen_plan(
    window: StreamWindow, settings: JobSettings, device: WorkDevice, blobs_for: Callable[[str], Blobs]
) -> Plan:
    """The plan by a window's rows; raises UnusableRows where none of them can be scored."""
    files, _ = window.input()
    kind, inside = kind_of(settings), window.blobs_for(blobs_for)
    looked = kind.first_look(files, inside, settings)
    samples = Samples(files, inside, kind, SampleOf(settings, device.info, looked.types))
    measured = measured_on(samples, lambda asked: device.calibrate(asked.rows))
    if measured.schema is None:
        raise UnusableRows("source", window.rows, f"check the rows of {settings.inputs[0]}")
    results = {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(measured.schema))}
    model = PlannedModel.of(device.info, settings.used_adapters)
    model = msgspec.structs.replace(model, parity=measured.parity, quality=measured.quality)
    row_s = measured.seconds_per_row * samples.last.model_rows
    schema = kind.schema(looked.kept, results)
    row = RowFigures(row_s, samples.last.row_bytes)
    return Plan.make(settings, model, (), (), schema, row, str(Path.cwd()), looked.types)


def write_plan(output: Blobs, plan: Plan) -> None:
    """Once, before the first part."""
    location = plan_location(plan.settings.output)
    if not output.create(location, msgspec.json.encode(plan)):
        raise InvalidInput(
            "output", plan.settings.output, "another folder: another stream has just started in this folder"
        )
