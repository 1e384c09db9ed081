"""A setting is declared once; its option, key, check and default follow."""

from __future__ import annotations

import enum
import inspect
from typing import Annotated, Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from twoshift.batch.settings import JobSettings
from twoshift.cli.commands import command
from twoshift.cli.params import flags_of, given_of, text, with_settings
from twoshift.declare import check, declared, differing, key, setting, settings_of
from twoshift.errors import InvalidInput
from twoshift.serve.settings import ServeSettings
from twoshift.values import EACH, FLAG, duration, each_named, mapping, names, share, whole


class Mark(enum.Enum):
    SECRET = enum.auto()


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table."""

    depth: Annotated[int, key("How deep.", whole(most=9))] = 1

    def __post_init__(self) -> None:
        check(self)


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of each kind."""

    name: Annotated[str, setting("A name.")]
    pause_seconds: Annotated[float, setting("How long.", duration(), "--pause")] = 30.0
    part: Annotated[float | None, setting("How much.", share(zero=False)), Mark.SECRET] = None
    columns: Annotated[tuple[str, ...], setting("Which.", names())] = ()
    stop: Annotated[tuple[str, ...], setting("When.", EACH)] = ()
    amounts: Annotated[dict[str, float], setting("Of what.", mapping("a=1,b=2", "name", float))] = {}
    places: Annotated[dict[str, str], setting("Where.", each_named("NAME=PLACE", "places"), "--place")] = {}
    aloud: Annotated[bool, setting("Whether.", FLAG, "--aloud")] = False
    lease: Annotated[int, key("Only in a file.", whole())] = 5
    one: Annotated[Inner, key("A table.")] = Inner()
    many: Annotated[dict[str, Inner], key("Tables.")] = {}

    def __post_init__(self) -> None:
        check(self)


def ran(*words: str) -> dict[str, Any] | str:
    """What a command is given, or what it says."""
    app, seen = typer.Typer(), dict[str, Any]()

    @command(app, "tell", "tell --name x", flags_of(Told))
    @with_settings(Told)
    def tell(first: Annotated[str, text("An option before them.")] = "", **given: Any) -> None:
        seen.update(given_of(Told, given))
        settings_of(Told, given_of(Told, given))

    done = CliRunner().invoke(app, list(words))
    return str(done.exception) if done.exception else seen


def test_a_command_has_the_options_of_settings_as_people_write_them() -> None:
    line = "--name x --pause 1m30s --part 40% --columns a,b --stop y --stop z --amounts a=1,b=0.5 --aloud"
    line += " --place a=b --place c=d=e"
    assert ran(*line.split()) == {
        "name": "x", "pause_seconds": 90.0, "part": 0.4, "columns": ["a", "b"], "stop": ["y", "z"],
        "amounts": {"a": 1.0, "b": 0.5}, "places": {"a": "b", "c": "d=e"}, "aloud": True,
    }  # fmt: skip


def test_what_is_not_given_is_left_to_the_file_and_the_defaults() -> None:
    assert ran("--name", "x") == {"name": "x"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--name x --part 2", "--part: '2' cannot be used; expected a share above 0, up to 1, such as 0.4"),
        ("--name x --pause 0", "--pause: '0' cannot be used; expected a duration above 0"),
        ("--part 0.5", "--name is missing"),
        ("--name x --amounts a=1,a=2", "--amounts: 'a=1,a=2' cannot be used; expected each name once; a occurs"),
        ("--name x --place a", "--place: 'a' cannot be used; expected NAME=PLACE"),
        ("--name x --place a=b --place a=c", "--place: 'a=c' cannot be used; expected each name once; a is given"),
    ],
)
def test_an_option_is_refused_by_its_flag(words: str, said: str) -> None:
    assert str(ran(*words.split())).startswith(said)


def test_a_key_of_a_file_alone_is_no_option() -> None:
    assert "lease" not in flags_of(Told)
    assert ran("--name", "x", "--lease", "5") == "2"  # the exit code of bad usage


def test_own_options_stand_before_those_of_settings_and_keyword_ones_behind() -> None:
    @with_settings(Inner, Told)
    def tell(first: str, *, last: str = "", **given: Any) -> None: ...

    order = list(inspect.signature(tell).parameters)
    assert (order[0], order[1], order[-1]) == ("first", "name", "last")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"part": 0.0}, "part: 0.0 cannot be used; expected a share above 0, up to 1, such as 0.4"),
        ({"pause_seconds": -1.0}, "pause_seconds: -1.0 cannot be used; expected seconds above 0"),
        ({"lease": 0}, "lease: 0 cannot be used; expected a whole number of at least 1"),
        ({"pause": 5}, "pause: 5 cannot be used; expected a known key, such as pause_seconds"),
        ({"one": {"depth": 10}}, "one.depth: 10 cannot be used; expected a whole number from 1 to 9"),
        ({"one": {"dept": 1}}, "one.dept: 1 cannot be used; expected a known key, such as depth"),
        ({"one": 1}, "one: 1 cannot be used; expected a table that begins with [one]"),
        ({"many": {"a": {"depth": "x"}}}, "many.a.depth: 'x' cannot be used; expected a whole number from 1 to 9"),
        ({"many": [1]}, "many: [1] cannot be used; expected tables such as [many.first]"),
    ],
)
def test_a_key_is_refused_by_its_name(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings_of(Told, {"name": "x", **data})
    assert str(caught.value) == said


def test_a_list_of_one_may_be_a_plain_text() -> None:
    assert settings_of(Told, {"name": "x", "columns": "a"}).columns == ("a",)


def test_what_differs_from_the_defaults_is_told_from_json_as_from_settings() -> None:
    told = Told(name="x", columns=("a",), many={"b": Inner(depth=2)})
    changed = {"name": "x", "columns": ["a"], "many": {"b": {"depth": 2}}}
    assert differing(Told, msgspec.json.decode(msgspec.json.encode(told))) == changed
    assert differing(Told, msgspec.to_builtins(told)) == changed | {"columns": ("a",)}


@pytest.mark.parametrize(("name", "value"), [("pause_seconds", 7.125), ("part", 0.123456789), ("columns", ["a", "b"])])
def test_what_is_written_for_a_command_is_read_as_the_same(name: str, value: object) -> None:
    kind = declared(Told)[name].setting.value
    assert kind.parse(kind.write(value), "--it") == value


def test_a_large_whole_number_loses_no_digit() -> None:
    assert whole(-(2**63), 2**63 - 1).parse("9007199254740993", "--seed") == 9007199254740993


def test_further_words_of_an_annotation_are_marks() -> None:
    assert {name for name, each in declared(Told).items() if Mark.SECRET in each.marks} == {"part"}


@pytest.mark.parametrize("settings", [JobSettings, ServeSettings])
def test_a_bad_value_is_refused_with_the_same_words_as_an_option_and_in_a_file(settings: type[msgspec.Struct]) -> None:
    needed = {"inputs": ["a"], "output": "o", "model": "m", "models": {"m": {"model": "minilm"}}}
    given = {name: value for name, value in needed.items() if name in declared(settings)}
    for name, each in declared(settings).items():
        if each.type is not int or not each.has_option:
            continue
        for raw, value in (("x", "x"), ("1.5", 1.5), ("-1", -1)):
            if each.setting.value.fits(-1) and raw == "-1":
                continue
            with pytest.raises(InvalidInput) as option:
                each.setting.value.parse(raw, name)
            with pytest.raises(InvalidInput) as file:
                settings_of(settings, {**given, name: value})
            assert option.value.accepted == file.value.accepted, name


def test_a_word_that_is_not_known_is_refused_with_the_nearest_as_an_option_and_in_a_file() -> None:
    with pytest.raises(InvalidInput) as file:
        settings_of(JobSettings, {"inputs": ["a"], "output": "o", "model": "m", "engine": "rai"})
    with pytest.raises(InvalidInput) as option:
        declared(JobSettings)["engine"].setting.value.parse("rai", "engine")
    told = "engine: 'rai' cannot be used; expected local or ray (did you mean ray?)"
    assert (str(file.value), str(option.value)) == (told, told)
