"""`models`: what has a name, where it comes from, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from twoshift.cli.commands import lone_group
from twoshift.cli.output import pretty, show
from twoshift.cli.params import JsonFlag
from twoshift.config import home
from twoshift.errors import TwoshiftError

if TYPE_CHECKING:
    from twoshift.policy.profile import Profile
    from twoshift.wiring.known_models import KnownModel

__all__ = ["app"]

app = lone_group(
    "List built-in models and measured profiles; the subcommands manage registered models.", "twoshift models"
)


@app.callback()
def models_command(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the built-in model names and the profiles that were measured on this machine."""
    if context.invoked_subcommand is not None:
        return
    from twoshift.wiring.known_models import known_models

    known = known_models()
    found, damaged = _profiles()
    data = {
        "models": known,
        "profiles": [_fields(profile) for profile in found],
        "damaged": damaged,
        "home": str(home()),
    }
    lines = ["Built-in models:", *(_known_line(model) for model in known), ""]
    if found:
        lines += ["Stored profiles (use one with --profile NAME):", *(_profile_line(profile) for profile in found)]
    else:
        lines.append(
            f"There is no profile in {home()} yet; `twoshift profile MODEL` measures a model and stores its profile."
        )
    show(as_json, data, *lines, *(f"  {name}\n    {reason}" for name, reason in damaged.items()))


def _profiles() -> tuple[list[Profile], dict[str, str]]:
    """The profiles, and why some cannot be read."""
    from twoshift.wiring.stored_profiles import profiles

    store = profiles()
    found: list[Profile] = []
    damaged: dict[str, str] = {}
    for name in store.names():
        try:
            found.append(store.get(name))
        except TwoshiftError as error:
            damaged[name] = str(error)
    return found, damaged


def _fields(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "model": profile.model,
        "runtime": profile.runtime,
        "device": profile.device,
        "precision": profile.precision,
        "checksum": profile.checksum,
        "parity": profile.parity,
        "created_at": profile.created_at,
        "samples": profile.samples,
        "row_tokens": profile.row.tokens,
        "shape": profile.cost.shape,
        "threads": None if profile.threads is None else [step._asdict() for step in profile.threads.steps],
    }


def _known_line(model: KnownModel) -> str:
    where = model.path or model.problem
    checked = model.problem or ""
    if model.checksum and model.weights_checksum:
        checked = (
            f"checksum {_short(model.checksum)}; checksum of the weights {_short(model.weights_checksum)}, as expected"
        )
    return f"  {model.name}: {model.about}\n    from {model.source}\n    {where}" + (
        f"\n    {checked}" if model.path else ""
    )


def _profile_line(profile: Profile) -> str:
    named = {"model": profile.model, "runtime": profile.runtime, "precision": profile.precision}
    words = [f"{name} {value}" for name, value in {**named, "device": profile.device}.items() if value]
    about = ", ".join(words) or "fitted by `twoshift plan fit`"
    parity = "" if profile.parity is None else f", parity {profile.parity:.5f}"
    checksum = f", checksum {_short(profile.checksum)}" if profile.checksum else ""
    rows = "" if profile.row.tokens == 1 else f"rows of {pretty(round(profile.row.tokens, 1), 3)} tokens, "
    when = f"{rows}{pretty(profile.samples)} calls, {profile.created_at[:10]}"
    threads = "" if profile.threads is None else f", {profile.threads}"
    return f"  {profile.name}\n    {about}\n    curve {profile.cost.shape}, {when}{checksum}{parity}{threads}"


def _short(checksum: str) -> str:
    return checksum.rpartition(":")[2][:12]
