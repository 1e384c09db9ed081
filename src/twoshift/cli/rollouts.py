"""`deploy` and `rollouts`: versions of a running server."""

from __future__ import annotations

import time
import urllib.parse
from typing import Annotated, Any

import msgspec
import typer

from twoshift import values
from twoshift.cli.app import app as program
from twoshift.cli.commands import command
from twoshift.cli.jobs import shown_time
from twoshift.cli.output import note, show, table
from twoshift.cli.params import JsonFlag, given_of, text, whole, with_settings
from twoshift.cli.server import SERVER_FIELDS, On, ServerClient, server_at
from twoshift.declare import setting
from twoshift.errors import Inapplicable

__all__ = ["app"]

app = typer.Typer(help="List, show, promote, roll back, pause and resume rollouts of a server.", no_args_is_help=True)
_ON = "--on http://127.0.0.1:8000"
_COLUMNS = ("<<rollout", "<deployment", "<stable", "<candidate", "<stage", "share", "<began")
_POLL_S = 1.0
Rollout = Annotated[str, typer.Argument(help="Id of the rollout, or name of its deployment.")]


class DeployOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which deployment gets a version, and how it begins."""

    name: Annotated[
        str | None,
        setting(
            "Name of the deployment that gets the new version.",
            values.text("NAME"),
            "--as",
            shown="the deployment that serves this model",
        ),
    ] = None
    canary: Annotated[
        float | None,
        setting("Skip the shadow stage, and begin with this share of the live requests.", values.share(zero=False)),
    ] = None
    now: Annotated[
        bool,
        setting("Promote the version as soon as it is loaded and warm, without a comparison.", values.FLAG, "--now"),
    ] = False
    shadow: Annotated[
        bool,
        setting(
            "Only compare answers: the new version answers copies of live requests in idle time, until you promote it "
            "or roll it back.",
            values.FLAG,
            "--shadow",
        ),
    ] = False
    replace: Annotated[
        bool,
        setting(
            "Unload the stable version before the new version is loaded: for devices without memory for both versions.",
            values.FLAG,
            "--replace",
        ),
    ] = False
    wait: Annotated[bool, setting("Wait until the new version is promoted or rolled back.", values.FLAG, "--wait")] = (
        False
    )

    @property
    def mode(self) -> str:
        """As the server calls it; raises InvalidInput where there are two."""
        chosen = [word for word in ("now", "shadow", "replace") if getattr(self, word)]
        if len(chosen) + (self.canary is not None) > 1:
            first, second, *_ = [*(["canary"] if self.canary is not None else []), *chosen]
            why = f"with --{second}: use only one of --canary, --now, --shadow and --replace"
            raise Inapplicable(first, getattr(self, first), why)
        return chosen[0] if chosen else "canary"


@command(program, "deploy", f"twoshift deploy sentiment:4 --canary 5% {_ON}", SERVER_FIELDS)
@with_settings(DeployOptions)
def deploy_command(
    model: Annotated[str, typer.Argument(help="Version to deploy, from the registry: NAME:4 or NAME@alias.")],
    *,
    on: On = None,
    as_json: JsonFlag = False,
    **given: Any,
) -> int:
    """Load a new version beside the current one, compare the two, and promote the new version or roll it back.

    Without options, the new version first answers copies of live requests, and its answers are compared with those of
    the current version. Then it gets 1, 5, 25 and 100 % of the live requests. Each step needs enough evidence.
    """
    asked = DeployOptions(**given_of(DeployOptions, given))
    body = {"model": model, "mode": asked.mode, "deployment": asked.name, "share": asked.canary}
    server = server_at(on)
    found = server.post("/v1/deployments", {key: value for key, value in body.items() if value is not None})
    if asked.wait:
        found = _ended(server, found)
    show(as_json, found, *_lines(found))
    return 1 if asked.wait and found["stage"] != "promoted" else 0


@command(app, "list", f"twoshift rollouts list {_ON}", SERVER_FIELDS)
def list_command(
    on: On = None,
    limit: Annotated[int, whole("Show at most N rollouts.", most=1000)] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the newest rollouts of a server."""
    found = server_at(on).get(f"/v1/rollouts?limit={limit}")
    rows = [_row(each) for each in found["data"]]
    show(as_json, found, table(_COLUMNS, rows) if rows else "There are no rollouts.")


@command(app, "show", f"twoshift rollouts show sentiment {_ON}", SERVER_FIELDS)
def show_command(rollout: Rollout, on: On = None, as_json: JsonFlag = False) -> None:
    """Show a rollout: stage, evidence and every decision."""
    found = server_at(on).get(_path(rollout))
    show(as_json, found, *_lines(found))


@command(app, "promote", f"twoshift rollouts promote sentiment {_ON}", SERVER_FIELDS)
def promote_command(rollout: Rollout, on: On = None, as_json: JsonFlag = False) -> None:
    """Promote a candidate now, regardless of the evidence."""
    _ask(rollout, "promote", on, as_json)


@command(app, "rollback", f"twoshift rollouts rollback sentiment {_ON}", SERVER_FIELDS)
def rollback_command(
    rollout: Rollout,
    why: Annotated[str | None, text("Reason to record in the log of the rollout.")] = None,
    on: On = None,
    as_json: JsonFlag = False,
) -> None:
    """End a rollout, and send all requests to the stable version again."""
    _ask(rollout, "rollback", on, as_json, why)


@command(app, "pause", f"twoshift rollouts pause sentiment {_ON}", SERVER_FIELDS)
def pause_command(rollout: Rollout, on: On = None, as_json: JsonFlag = False) -> None:
    """Pause a rollout at its current share of requests; a worse candidate is still rolled back."""
    _ask(rollout, "pause", on, as_json)


@command(app, "resume", f"twoshift rollouts resume sentiment {_ON}", SERVER_FIELDS)
def resume_command(rollout: Rollout, on: On = None, as_json: JsonFlag = False) -> None:
    """Resume a paused rollout."""
    _ask(rollout, "resume", on, as_json)


def _ask(rollout: str, what: str, on: str | None, as_json: bool, why: str | None = None) -> None:
    found = server_at(on).post(f"{_path(rollout)}/{what}", {"reason": why} if why else None)
    show(as_json, found, f"The server accepted `{what}` for {found['candidate']}, deployment {found['deployment']}.")


def _ended(server: ServerClient, rollout: dict[str, Any]) -> dict[str, Any]:
    told = ""
    while True:
        found = server.get(_path(rollout["id"]), lambda error: note(str(error)))
        if found["stage"] in ("promoted", "rolled_back"):
            return found
        if (shown := f"{found['stage']} {found['share']:.0%}: {found['reason']}") != told:
            note(told := shown)
        time.sleep(_POLL_S)


def _path(rollout: str) -> str:
    return f"/v1/rollouts/{urllib.parse.quote(rollout, safe='')}"


def _row(rollout: dict[str, Any]) -> tuple[str, ...]:
    began, stage = shown_time(rollout["created_at"]), rollout["stage"] + (" (paused)" if rollout["paused"] else "")
    named = (rollout[key] for key in ("id", "deployment", "stable", "candidate"))
    return *named, stage, f"{rollout['share']:.0%}", began


def _lines(rollout: dict[str, Any]) -> list[str]:
    paused = ", paused" if rollout["paused"] else ""
    lines = [
        f"{rollout['id']}: deployment {rollout['deployment']} from {rollout['stable']} to {rollout['candidate']}",
        f"stage {rollout['stage']}, {rollout['share']:.0%} of the live requests{paused}; {rollout['reason']}",
    ]
    if (seen := rollout.get("differences")) is not None and seen["rows"]:
        lines.append(
            f"rows compared: {seen['rows']:,}; difference of the answers: p50 {seen['p50']:.4f}, "
            f"p99 {seen['p99']:.4f}, above {seen['bound']:g} in {seen['share_above']:.2%} of the rows"
        )
    for event in rollout.get("events", ()):
        lines.append(f"{shown_time(event['at'])}  {event['text']}")
        lines += [f"    {each}" for each in event["figures"]]
    return lines
