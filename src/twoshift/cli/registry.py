"""`models list`, `show`, `history`, `pull`, `verify`: what the registry holds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from twoshift.cli.commands import command
from twoshift.cli.model_options import RegistryAt
from twoshift.cli.models import app
from twoshift.cli.output import note, show, table
from twoshift.cli.params import JsonFlag, text
from twoshift.cli.progress import progress_bar
from twoshift.errors import InvalidInput
from twoshift.units import counted

if TYPE_CHECKING:
    from twoshift.registry.names import ModelRef
    from twoshift.registry.records import Version
    from twoshift.registry.store import Registry

__all__ = ["Ref", "megabytes", "pace", "ref_of", "version_line"]

Ref = Annotated[str, typer.Argument(help="Registered model: NAME (its newest version), NAME:3 or NAME@prod.")]
_COLUMNS = ("<<model", "version", "<aliases", "size", "<created", "<by", "<note")
_MOVES = ("<when", "version", "<how", "<by", "<note")


@command(app, "list", "twoshift models list")
def list_command(
    name: Annotated[str | None, typer.Argument(help="Show all versions of this model.")] = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """List the registered models, or the versions of one."""
    from twoshift.wiring.registered_models import registry_at

    store = registry_at(registry)
    if name is None:
        found = [(each, store.versions(each)[-1:]) for each in store.names()]
    else:
        store.find(ref_of(name))
        found = [(ref_of(name).name, store.versions(ref_of(name).name))]
    versions = [store.version(each, number) for each, numbers in found for number in numbers]
    pointing = {each: _pointing(store, each) for each, _ in found}
    data = {
        "registry": store.root,
        "versions": [_summary(each, pointing[each.name].get(each.version, [])) for each in versions],
        "aliases": {
            f"{name}@{alias}": n for name, by in pointing.items() for n, those in by.items() for alias in those
        },
    }
    rows = [_row(each, pointing[each.name], is_all=name is not None) for each in versions]
    empty = f"No model in {store.root} yet: `twoshift models push NAME SOURCE` adds one."
    show(as_json, data, table(_COLUMNS, rows, less=("by", "created")) if rows else empty)


@command(app, "show", "twoshift models show doubler@prod")
def show_command(model: Ref, registry: RegistryAt = None, as_json: JsonFlag = False) -> None:
    """Show a version: files, checksum, source, aliases, profiles and who uses it."""
    from twoshift.wiring.registered_models import registry_at

    store = registry_at(registry)
    version = store.find(ref_of(model))
    aliases = _pointing(store, version.name).get(version.version, [])
    profiles, uses = store.profile_names(version), store.uses(version)
    data = {
        **msgspec.to_builtins(version),
        "size_bytes": version.size_bytes,
        "aliases": aliases,
        "profiles": profiles,
        "uses": msgspec.to_builtins(uses),
    }
    known = [
        f"{version.ref}: {megabytes(version.size_bytes)} in {counted(len(version.files), 'file')}, {version.checksum}",
        f"loads {version.entry if version.entry != '.' else 'its folder'}{_as_loaded(version)}",
        f"from {version.source}{f', after {version.parent}' if version.parent else ''}",
        f"pushed {version.created_at} by {version.created_by}",
        *([f"note: {version.note}"] if version.note else []),
        f"aliases: {', '.join(f'{version.name}@{each}' for each in aliases) or 'none'}",
        f"profiles: {', '.join(each.removeprefix('on.') for each in profiles) or 'none'}",
        *(f"used by {use.kind} {use.where}, {use.created_at}" for use in uses),
    ]
    files = [(file.path, f"{file.size_bytes:,}", file.sha256) for file in version.files]
    show(as_json, data, *known, table(("<<file", "bytes", "<<sha256"), files, less=("sha256",)))


@command(app, "history", "twoshift models history doubler@prod")
def history_command(
    alias: Annotated[str, typer.Argument(help="Alias: NAME@prod.")],
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """List what an alias pointed to, oldest first."""
    from twoshift.registry.names import alias_ref
    from twoshift.wiring.registered_models import registry_at

    store, (name, word) = registry_at(registry), alias_ref(alias)
    moves = store.aliases.history(name, word)
    if not moves:
        store.find(ref_of(alias))  # says what there is
    rows = [
        (each.created_at, str(each.version), "rollback" if each.is_rollback else "set", each.created_by, each.note)
        for each in moves
    ]
    show(as_json, {"alias": alias, "moves": msgspec.to_builtins(moves)}, table(_MOVES, rows))


@command(app, "pull", "twoshift models pull doubler:1")
def pull_command(
    model: Ref,
    output: Annotated[
        str | None, text("Copy the files to this new folder.", "-o", "--output", metavar="FOLDER", shown="the cache")
    ] = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """Download a version to this machine's cache and compare its checksums."""
    from twoshift.wiring.registered_models import found_version, local_model, model_cache

    if output is not None and Path(output).expanduser().exists():
        raise InvalidInput("output", output, "a folder that does not exist yet")
    version = found_version(str(ref_of(model)), registry, note)
    if version is None:
        raise InvalidInput("MODEL", model, "a registered model; this is a file or folder")
    began_s, was_here = time.monotonic(), model_cache().folder(version) is not None
    with progress_bar(f"Downloading {version.ref}") as progress:
        local = local_model(version.ref, registry, trust_pickle=True, note=note, progress=progress)
    assert local.folder is not None  # noqa: S101 - it is a registered one
    folder = local.folder
    if output is not None:
        folder = Path(output).expanduser()
        shutil.copytree(local.folder, folder, copy_function=shutil.copyfile)
    took_s = time.monotonic() - began_s
    how = "; it was in the cache" if was_here else pace(version.size_bytes, took_s)
    data = {
        "model": version.ref,
        "checksum": version.checksum,
        "bytes": version.size_bytes,
        "folder": str(folder),
        "seconds": took_s,
    }
    show(as_json, data, f"{version.ref}: {megabytes(version.size_bytes)} in {folder}{how}")


@command(app, "verify", "twoshift models verify doubler:1")
def verify_command(
    model: Annotated[str | None, typer.Argument(help="NAME, NAME:3 or NAME@prod; all versions if omitted.")] = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> int:
    """Read every file of a version, in the registry and in this machine's cache, and compare its checksum."""
    from twoshift.wiring.registered_models import model_cache, registry_at

    store, cache = registry_at(registry), model_cache()
    damaged = dict[str, dict[str, str]]()
    versions = _meant(store, None if model is None else ref_of(model))
    for version in versions:
        with progress_bar(f"Verifying {version.ref}") as progress:
            found = store.damaged(version, progress)
        here = cache.damaged(version)
        if here:
            cache.forget(version)  # the next start downloads it again
        found |= {f"{path} (cache)": f"{what}; removed from the cache" for path, what in (here or {}).items()}
        if found:
            damaged[version.ref] = found
    lines = [f"{ref}: {what}" for ref, found in damaged.items() for what in found.values()]
    whole = f"{counted(len(versions) - len(damaged), 'version')} of {len(versions):,} as pushed."
    show(as_json, {"versions": [each.ref for each in versions], "damaged": damaged}, *lines, whole)
    return 1 if damaged else 0


def _meant(store: Registry, ref: ModelRef | None) -> list[Version]:
    if ref is None:
        return [store.version(name, number) for name in store.names() for number in store.versions(name)]
    if ref.is_explicit:
        return [store.find(ref)]
    store.find(ref)
    return [store.version(ref.name, number) for number in store.versions(ref.name)]


def ref_of(word: str) -> ModelRef:
    """What the word names; raises InvalidInput."""
    from twoshift.registry.names import parse_ref

    ref = parse_ref(word)
    if ref is None:
        raise InvalidInput("MODEL", word, "a registered model: NAME, NAME:3 or NAME@prod")
    return ref


def megabytes(count: int) -> str:
    """For people."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"


def pace(count: int, seconds: float) -> str:
    """How fast so many bytes were; nothing where they were few."""
    return f" ({seconds:,.1f} s, {count / seconds / 1e6:,.0f} MB/s)" if count >= 1e6 and seconds > 0 else ""


def version_line(version: Version) -> str:
    """What was pushed."""
    how = f", loads with {version.runtime}" if version.runtime else ""
    return f"{version.ref}: {megabytes(version.size_bytes)} in {counted(len(version.files), 'file')}{how}"


def _as_loaded(version: Version) -> str:
    if version.is_llm:
        return ", a language model"
    return f" with {version.runtime}: {', '.join(version.outputs)}" if version.runtime else ", not checked at the push"


def _pointing(store: Registry, name: str) -> dict[int, list[str]]:
    """The aliases of a model, by the versions that they point to."""
    found = dict[int, list[str]]()
    for alias in store.aliases.of(name):
        if (move := store.aliases.current(name, alias)) is not None:
            found.setdefault(move.version, []).append(alias)
    return found


def _summary(version: Version, aliases: list[str]) -> dict[str, Any]:
    kept = ("name", "version", "checksum", "created_at", "created_by", "note", "source", "parent")
    return {name: getattr(version, name) for name in kept} | {"size_bytes": version.size_bytes, "aliases": aliases}


def _row(version: Version, pointing: dict[int, list[str]], is_all: bool) -> tuple[str, ...]:
    """Aliases of a model's other versions are shown with its newest one."""
    shown = {number: those for number, those in pointing.items() if number == version.version or not is_all}
    aliases = [
        f"@{alias}" if number == version.version else f"@{alias} = {number}"
        for number, those in shown.items()
        for alias in those
    ]
    return (
        version.name, str(version.version), ", ".join(sorted(aliases)), megabytes(version.size_bytes),
        version.created_at[:16].replace("T", " "), version.created_by, version.note,
    )  # fmt: skip
