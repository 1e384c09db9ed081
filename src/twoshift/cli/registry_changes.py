"""`models push`, `alias`, `rollback`, `remove`, `clean`: what changes the registry."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from twoshift.cli.commands import command
from twoshift.cli.model_options import LOAD_TIMEOUT_S, LoadTimeout, RegistryAt, TrustPickle
from twoshift.cli.models import app
from twoshift.cli.output import note as tell
from twoshift.cli.output import own_stdout, show
from twoshift.cli.params import JsonFlag, text
from twoshift.cli.progress import Ongoing, progress_bar
from twoshift.cli.registry import megabytes, pace, version_line
from twoshift.errors import Broken, Inapplicable, InvalidInput
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.registry.store import Registry
    from twoshift.wiring.trial_load import LoadedFacts

__all__ = ["push_command"]

_SOURCE = (
    "Model to push: any model that `twoshift run --model` takes, organisation/name from the Hugging Face cache, an "
    "MLflow model folder, or models:/name@alias of an MLflow registry."
)
_KEPT = (
    "No files were deleted: files are kept while another version uses them, while a push runs, or while the record of "
    "a version is damaged."
)
Alias = Annotated[str, typer.Argument(help="Alias of a model: NAME@prod.")]
Note = Annotated[str, text("Note to store with the new version, or with the change of the alias.")]


@command(app, "push", "twoshift models push doubler model.py:Doubler --note 'first try'")
def push_command(
    name: Annotated[str, typer.Argument(help="Name of the model.")],
    source: Annotated[str, typer.Argument(help=_SOURCE)],
    note: Note = "",
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Additional file or folder that the model needs; repeat the option for several files or folders.",
        ),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Skip the check that loads the model before the push.")
    ] = False,
    trust_pickle: TrustPickle = False,
    load_timeout: LoadTimeout = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """Push a model to the registry as a new version. A separate process loads the model first, as a check."""
    from twoshift.registry.names import checked_model_name
    from twoshift.wiring.model_sources import artifact_of, checked
    from twoshift.wiring.registered_models import registry_at
    from twoshift.wiring.trial_load import loaded_alone

    def load(word: str) -> LoadedFacts:
        with Ongoing() as doing:
            doing(f"Loading {source} once, as a check")
            return loaded_alone(word, trust_pickle, load_timeout or LOAD_TIMEOUT_S)

    checked_model_name(name)
    store = registry_at(registry)
    with tempfile.TemporaryDirectory(prefix="twoshift-push-") as folder, own_stdout():
        scratch = Path(folder)
        made = artifact_of(source, scratch, trust_pickle=trust_pickle, also=more or (), registry=registry)
        made = checked(made, scratch, None if no_check else load)
        began_s = time.monotonic()
        with progress_bar(f"Pushing {name}") as progress:
            version = store.push(name, made, note, progress)
    took_s = time.monotonic() - began_s
    data = {**msgspec.to_builtins(version), "size_bytes": version.size_bytes, "registry": store.root, "seconds": took_s}
    show(as_json, data, f"{version_line(version)}; pushed to {store.root}{pace(version.size_bytes, took_s)}")


@command(app, "alias", "twoshift models alias doubler@prod 2")
def alias_command(
    alias: Alias,
    version: Annotated[str | None, typer.Argument(help="Version that the alias points to: 3 or NAME:3.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the alias; its history stays.")] = False,
    note: Note = "",
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """Point an alias to a version, or delete the alias."""
    from twoshift.registry.names import alias_ref
    from twoshift.wiring.registered_models import registry_at

    name, word = alias_ref(alias)
    if version is None and not delete:
        raise InvalidInput("VERSION", None, f"a version of {name}, such as 3, or the option --delete")
    if version is not None and delete:
        raise Inapplicable("VERSION", version, "with --delete: use only one of the two")
    store = registry_at(registry)
    if version is None:
        was = store.delete_alias(name, word, note)
        show(
            as_json,
            {"alias": alias, "version": None, "before": was},
            f"{alias} is deleted; it pointed to {name}:{was}.",
        )
        return
    number, was = _number(version, name), _pointed_to(store, name, word)
    store.alias(name, word, number, note)
    data = {"alias": alias, "version": number, "before": was}
    before = "" if was is None else f"; it pointed to {name}:{was} before"
    show(as_json, data, f"{alias} points to {name}:{number}{before}.")


def _pointed_to(store: Registry, name: str, alias: str) -> int | None:
    try:
        before = store.aliases.current(name, alias)
    except Broken:  # it is set again
        return None
    return None if before is None else before.version


@command(app, "rollback", "twoshift models rollback doubler@prod")
def rollback_command(alias: Alias, note: Note = "", registry: RegistryAt = None, as_json: JsonFlag = False) -> None:
    """Point an alias back to its previous version."""
    from twoshift.registry.names import alias_ref
    from twoshift.wiring.registered_models import registry_at

    name, word = alias_ref(alias)
    store = registry_at(registry)
    before = store.aliases.current(name, word)
    number = store.rollback(name, word, note)
    was = None if before is None else before.version
    show(
        as_json,
        {"alias": alias, "version": number, "before": was},
        f"{alias} points to {name}:{number}; it pointed to {name}:{was} before.",
    )


@command(app, "remove", "twoshift models remove doubler:2")
def remove_command(
    version: Annotated[str, typer.Argument(help="Version to remove: NAME:3.")],
    force: Annotated[bool, typer.Option("--force", help="Remove the version even if a server uses it.")] = False,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> int:
    """Remove a version that no alias points to, and its files that no other version uses."""
    from twoshift.registry.names import version_ref
    from twoshift.wiring.registered_models import registry_at

    ref, store = version_ref(version), registry_at(registry)
    freed = store.remove(ref.name, ref.version or 0, force)
    damaged = {} if freed else store.read_all(store.refs())[1]
    data = {"removed": str(ref), "freed_bytes": freed, "damaged": damaged}
    show(as_json, data, f"Removed {ref}; {megabytes(freed)} freed.")
    if not freed:
        tell(_KEPT)
    return _told_damage(damaged)


@command(app, "clean", "twoshift models clean")
def clean_command(registry: RegistryAt = None, as_json: JsonFlag = False) -> int:
    """Delete files that no version uses, including those that interrupted pushes left behind."""
    from twoshift.wiring.registered_models import registry_at

    store = registry_at(registry)
    freed, leftovers = store.clean()
    damaged = {} if freed else store.read_all(store.refs())[1]
    data = {"freed_bytes": freed, "leftovers": leftovers, "damaged": damaged}
    removed = counted(leftovers, "unfinished file")
    show(as_json, data, f"{megabytes(freed)} freed; {removed} of interrupted pushes removed.")
    return _told_damage(damaged)


def _told_damage(damaged: dict[str, str]) -> int:
    """The exit code."""
    for ref, what in damaged.items():
        tell(f"{ref}: {what}")
    if damaged:
        tell("No file is deleted while a record is damaged; `twoshift models remove NAME:3` removes the record.")
    return 1 if damaged else 0


def _number(given: str, name: str) -> int:
    """3 or NAME:3."""
    plain = given.removeprefix(f"{name}:")
    if not plain.isascii() or not plain.isdigit() or not 0 < int(plain) < 10**6:
        raise InvalidInput("VERSION", given, f"a version of {name}, such as 3 or {name}:3")
    return int(plain)
