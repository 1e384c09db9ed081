"""`models list`, `show`, `history`, `pull`, `verify`: what the registry holds."""

from __future__ import annotations

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
    from twoshift.registry.records import AliasMove, Evaluation, Version
    from twoshift.registry.store import Registry

__all__ = ["Ref", "megabytes", "pace", "ref_of", "version_line"]

Ref = Annotated[str, typer.Argument(help="Registered model: NAME (its newest version), NAME:3 or NAME@prod.")]
_COLUMNS = ("<<model", "version", "<aliases", "size", "<created", "<by", "<note")
_MOVES = ("<when", "version", "<change", "<by", "<note")


@command(app, "list", "twoshift models list")
def list_command(
    name: Annotated[str | None, typer.Argument(help="Show all versions of this model.")] = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> int:
    """List the registered models, or the versions of one model."""
    from twoshift.wiring.registered_models import registry_at

    store = registry_at(registry)
    refs = store.refs(None if name is None else _known_name(store, name))
    if name is None:
        refs = list({ref.name: ref for ref in refs}.values())  # the newest of each
    versions, damaged = store.read_all(refs)
    pointing = dict[str, dict[int, list[str]]]()
    for each in dict.fromkeys(ref.name for ref in refs):
        pointing[each], broken = store.aliases.pointing(each)
        damaged |= {f"{each}@{alias}": what for alias, what in broken.items()}
    data = {
        "registry": store.root,
        "versions": [_summary(each, pointing[each.name].get(each.version, [])) for each in versions],
        "aliases": {
            f"{name}@{alias}": n for name, by in pointing.items() for n, those in by.items() for alias in those
        },
        "damaged": damaged,
    }
    rows = [_row(each, pointing[each.name], is_all=name is not None) for each in versions]
    empty = f"There is no model in {store.root} yet; `twoshift models push NAME SOURCE` adds a model."
    shown = [table(_COLUMNS, rows, less=("by", "created"))] if rows else [] if damaged else [empty]
    show(as_json, data, *shown, *(f"{ref}: {what}" for ref, what in damaged.items()))
    return 1 if damaged else 0


@command(app, "show", "twoshift models show doubler@prod")
def show_command(model: Ref, registry: RegistryAt = None, as_json: JsonFlag = False) -> None:
    """Show a version: files, checksum, source, aliases, profiles, evaluations and who uses it."""
    from twoshift.wiring.registered_models import registry_at

    store = registry_at(registry)
    version = store.find(ref_of(model))
    aliases = store.aliases.pointing(version.name)[0].get(version.version, [])
    profiles, uses, evaluations = store.profiles.names(version), store.uses(version), store.evaluations.of(version)
    data = {
        **msgspec.to_builtins(version),
        "size_bytes": version.size_bytes,
        "aliases": aliases,
        "profiles": profiles,
        "evaluations": msgspec.to_builtins(evaluations),
        "uses": msgspec.to_builtins(uses),
    }
    known = [
        f"{version.ref}: {megabytes(version.size_bytes)} in {counted(len(version.files), 'file')}, {version.checksum}",
        f"loaded from {version.entry if version.entry != '.' else 'its folder'}{_as_loaded(version)}",
        f"source: {version.source}{f'; previous version: {version.parent}' if version.parent else ''}",
        f"pushed {version.created_at} by {version.created_by}",
        *([f"note: {version.note}"] if version.note else []),
        f"aliases: {', '.join(f'{version.name}@{each}' for each in aliases) or 'none'}",
        f"profiles: {', '.join(each.removeprefix('on.') for each in profiles) or 'none'}",
        *(_evaluation_line(each) for each in evaluations),
        *(f"used by {use.kind} {use.where} since {use.created_at}" for use in uses),
    ]
    files = [(file.path, f"{file.size_bytes:,}", file.sha256) for file in version.files]
    show(as_json, data, *known, table(("<<file", "bytes", "<<sha256"), files, less=("sha256",)))


@command(app, "history", "twoshift models history doubler@prod")
def history_command(
    alias: Annotated[str, typer.Argument(help="Alias of a model: NAME@prod.")],
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> None:
    """List the versions that an alias has pointed to, oldest first."""
    from twoshift.registry.names import alias_ref
    from twoshift.wiring.registered_models import registry_at

    store, (name, word) = registry_at(registry), alias_ref(alias)
    moves = store.aliases.history(name, word)
    if not moves:
        store.find(ref_of(alias))  # says what there is
    rows = [
        (each.created_at, "" if each.is_deletion else str(each.version), _how(each), each.created_by, each.note)
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
    """Download a version to this machine's cache, and check its checksums."""
    from twoshift.registry.copying import copied
    from twoshift.wiring.registered_models import found_version, local_model, model_cache

    folder = None if output is None else _new_folder(output)
    version = found_version(str(ref_of(model)), registry, note)
    if version is None:
        raise InvalidInput("MODEL", model, "a registered model; this is a file or folder")
    began_s, was_here = time.monotonic(), model_cache().folder(version) is not None
    with progress_bar(f"Downloading {version.ref}") as progress:
        local = local_model(version.ref, registry, trust_pickle=True, note=note, progress=progress)
    assert local.folder is not None  # noqa: S101 - it is a registered one
    if folder is not None:
        copied(local.folder, folder)
    took_s = time.monotonic() - began_s
    how = "; already in the cache" if was_here else pace(version.size_bytes, took_s)
    data = {
        "model": version.ref,
        "checksum": version.checksum,
        "bytes": version.size_bytes,
        "folder": str(folder or local.folder),
        "seconds": took_s,
    }
    show(as_json, data, f"{version.ref}: {megabytes(version.size_bytes)} in {folder or local.folder}{how}")


def _new_folder(output: str) -> Path:
    """A folder that may be filled; raises InvalidInput."""
    folder = Path(output).expanduser()
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInput("output", output, "a folder that is empty or does not exist; this folder contains files")
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("output", output, "a folder, not a file")
    return folder


@command(app, "verify", "twoshift models verify doubler:1")
def verify_command(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Registered model: NAME, NAME:3 or NAME@prod. Without this argument, all versions are checked."
        ),
    ] = None,
    registry: RegistryAt = None,
    as_json: JsonFlag = False,
) -> int:
    """Read every file of a version, in the registry and in this machine's cache, and check its checksum."""
    from twoshift.wiring.registered_models import model_cache, registry_at

    store, cache = registry_at(registry), model_cache()
    versions, unreadable = store.read_all(_meant(store, None if model is None else ref_of(model)))
    damaged = {ref: {"record": what} for ref, what in unreadable.items()}
    for version in versions:
        with progress_bar(f"Verifying {version.ref}") as progress:
            found = store.damaged(version, progress)
        here = cache.damaged(version)
        if here:
            cache.forget(version)  # the next start downloads it again
        found |= {f"{path} (cache)": f"{what}; removed from the cache" for path, what in (here or {}).items()}
        if found:
            damaged[version.ref] = found
    refs = [each.ref for each in versions] + list(unreadable)
    lines = [f"{ref}: {what}" for ref, found in damaged.items() for what in found.values()]
    lines.append(f"Undamaged: {len(refs) - len(damaged):,} of {counted(len(refs), 'version')}.")
    if len(damaged) > len(unreadable):
        lines.append("To replace damaged files, push the same model again.")
    show(as_json, {"versions": refs, "damaged": damaged}, *lines)
    return 1 if damaged else 0


def _meant(store: Registry, ref: ModelRef | None) -> list[ModelRef]:
    from twoshift.registry.names import ModelRef

    if ref is None:
        return store.refs()
    if ref.alias is not None:
        return [ModelRef(ref.name, store.find(ref).version)]
    if ref.version is not None and ref.version in store.versions(ref.name):
        return [ref]
    if ref.version is not None:
        store.find(ref)  # says what there is
    return store.refs(_known_name(store, ref.name))


def _known_name(store: Registry, word: str) -> str:
    """The model that a word names; raises NotFound with the known ones."""
    ref = ref_of(word)
    if ref.is_explicit or not store.versions(ref.name):
        store.find(ref)
    return ref.name


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
    how = f", runtime {version.runtime}" if version.runtime else ""
    return f"{version.ref}: {megabytes(version.size_bytes)} in {counted(len(version.files), 'file')}{how}"


def _as_loaded(version: Version) -> str:
    if version.is_llm:
        return " as a language model"
    if not version.runtime:
        return "; not checked when it was pushed"
    outputs = f"; outputs: {', '.join(version.outputs)}" if version.outputs else ""
    return f" with the runtime {version.runtime}{outputs}"


def _how(move: AliasMove) -> str:
    return "deleted" if move.is_deletion else "rollback" if move.is_rollback else "set"


def _evaluation_line(made: Evaluation) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in made.figures.items() if isinstance(value, float))
    rows = f" over {made.figures['rows']:,} rows" if isinstance(made.figures.get("rows"), int) else ""
    return f"compared with {made.against}{rows}: difference {figures}; {made.where}, {made.created_at}"


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
