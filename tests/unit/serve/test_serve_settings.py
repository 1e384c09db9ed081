"""What a server is asked to do, from a file or from options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twoshift.errors import InvalidInput
from twoshift.serve.keys import digest_of
from twoshift.serve.settings import ServeSettings, make_settings, read_settings

DIGEST = digest_of("ts-a")
FILE = f"""
host = "0.0.0.0"
grace = "5s"
[models.minilm]
slo_ms = 50
[models.fraud]
model = "fraud.ubj"
max_batch = 64
[keys.alice]
sha256 = "{DIGEST}"
requests_per_minute = 600
concurrency = 16
models = ["minilm"]
"""


def made(**data: Any) -> ServeSettings:
    return make_settings({"models": {"m": {}}} | data)


def test_a_file_has_several_models_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(FILE)
    settings = read_settings(path, {"port": 0})
    assert {name: model.model for name, model in settings.models.items()} == {"minilm": "minilm", "fraud": "fraud.ubj"}
    assert settings.models["fraud"].max_batch == 64
    assert settings.keys["alice"].models == ("minilm",)
    assert (settings.host, settings.port, settings.grace_s) == ("0.0.0.0", 0, 5.0)  # noqa: S104


@pytest.mark.parametrize(
    ("given", "is_scaled", "first"),
    [
        ({}, False, 1),
        ({"replicas": 2}, False, 2),
        ({"max_replicas": 3}, True, 1),
        ({"replicas": 3, "max_replicas": 3}, False, 3),
        ({"replicas": 3, "min_replicas": 1, "max_replicas": 3}, True, 3),
        ({"min_replicas": 2, "max_replicas": 3}, True, 2),
        ({"min_replicas": 0, "max_replicas": 1}, True, 1),
    ],
)
def test_replicas_are_scaled_where_there_is_room_to(given: dict[str, Any], is_scaled: bool, first: int) -> None:
    model = made(models={"m": given}).models["m"]
    assert (model.is_scaled, model.first_replicas) == (is_scaled, first)


@pytest.mark.parametrize(
    ("given", "engine", "most"),
    [
        ({"replicas": 2}, "local", 2),
        ({"max_replicas": 3}, "local", 1),
        ({"max_replicas": 3, "scale": {"batch_replicas": 1}}, "local", 2),
        ({"min_replicas": 0, "max_replicas": 3, "scale": {"batch_replicas": 9}}, "local", 3),
        ({"min_replicas": 2, "max_replicas": 3, "scale": {"batch_replicas": 9}}, "ray", 2),
    ],
)
def test_a_job_may_ask_for_replicas_as_far_as_the_server_allows(given: dict[str, Any], engine: str, most: int) -> None:
    assert made(models={"m": given}).models["m"].job_replicas(engine) == most


def test_how_they_are_scaled_may_be_said() -> None:
    scale = made(models={"m": {"scale": {"cooldown": "1m", "batch_replicas": 2}}}).models["m"].scale
    policy = scale.policy(1, 4)
    assert (policy.replicas.settings.cooldown_s, policy.workers.settings.quota, policy.device_limit) == (60.0, 2, 4)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_this_machine_alone_needs_no_keys(host: str) -> None:
    assert made(host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "", "example.org", "localhost.example.org"])  # noqa: S104
def test_beyond_this_machine_there_must_be_keys_or_the_word_for_none(host: str) -> None:
    with pytest.raises(InvalidInput, match=r"host.*keys \(`twoshift key`\), or --open"):
        made(host=host)
    assert made(host=host, open=True).open
    assert made(host=host, keys={"a": {"sha256": DIGEST}}).keys


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"prot": 1}, "prot: 1 cannot be used; expected a known key, such as port"),
        ({"models": {"m": {"slo": 5}}}, r"models.m.slo: 5 .* such as slo_ms"),
        ({"models": {"m": {"max_rows": 5}}}, "such as max_"),
        ({"models": {"m": {"scale": {"cool": "1m"}}}}, r"models.m.scale.cool: .* such as cooldown"),
        ({"models": {"m": {"scale": {"target_load": 2.0}}}}, "target_load"),
        ({"models": {"m": {"scale": {"every": "1ms"}}}}, "every"),
        ({"models": {"m": {"replicas": 3, "max_replicas": 2}}}, "max_replicas: 2 .* at least 3"),
        ({"models": {"m": {"min_replicas": 2}}}, "min_replicas: 2 cannot be used without max_replicas"),
        (
            {"engine": "ray", "models": {"m": {"min_replicas": 0, "max_replicas": 2}}},
            "min_replicas: 0 .* at least 1 with engine = ray",
        ),
        ({"fronts": 2, "models": {"m": {"min_replicas": 0, "max_replicas": 2}}}, "fronts: 2 .* min_replicas = 0"),
        ({"engine": "spark"}, "engine: 'spark' .* local or ray"),
        ({"address": "auto"}, "address: 'auto' cannot be used without engine = ray"),
        ({"keys": {"a": {"sha": DIGEST}}}, r"keys.a.sha: .* such as sha256"),
        ({"keys": {"a": {"sha256": DIGEST, "models": ["n"]}}}, r"keys.a.models: 'n' .* one of these models: m"),
        ({"keys": {"a": {}}}, "sha256"),
        ({"keys": [1]}, r"tables such as \[keys.first\]"),
        ({"tenants": {"b": {}}, "keys": {"a": {"sha256": DIGEST}}}, r"tenants.b: 'b' .* the tenant of a key: a"),
        ({"tenants": {"a": {"requests": 1}}, "keys": {"a": {"sha256": DIGEST}}}, "such as requests_per_second"),
        ({"tenants": {"a": {"stored_bytes": 0}}, "keys": {"a": {"sha256": DIGEST}}}, "stored_bytes"),
        ({"tenants": {"a": {"job_roots": ["x"]}}, "keys": {"a": {"sha256": DIGEST}}}, "job_roots"),
        ({"keys": {"a": {"sha256": DIGEST, "tenant": "x\n"}}}, "printable"),
        ({"price_usd_per_hour": -1}, "price_usd_per_hour"),
        ({"batch_price_share": 1.5}, "batch_price_share"),
        ({"models": {"m": 1}}, r"tables such as \[models.first\]"),
        ({"models": {}}, "at least one model"),
        ({"port": 70_000}, "port: 70000"),
        ({"port": "80"}, "port"),
        ({"grace": "soon"}, "grace"),
        ({"max_body_mib": 0}, "max_body_mib"),
        ({"max_body_mib": float("inf")}, "max_body_mib"),
        ({"max_body_mib": float("nan")}, "max_body_mib"),
        ({"max_connections": 0}, "max_connections"),
        ({"models": {"m": {"slo_ms": 0}}}, "slo_ms"),
        ({"models": {"m": {"slo_ms": float("inf")}}}, "slo_ms"),
        ({"models": {"m": {"max_waiting": 0}}}, "max_waiting"),
        ({"models": {"m": {"live_slowdown": 0.9}}}, "live_slowdown: 0.9 .* a factor of at least 1, such as 1.2"),
        ({"models": {"m": {"live_slowdown": float("inf")}}}, "live_slowdown"),
        ({"models": {"m": {"live_slowdown": "1.2"}}}, "live_slowdown"),
        ({"models": {"m": {"ttft_ms": 0}}}, "ttft_ms"),
        ({"models": {"m": {"tpot_ms": -1}}}, "tpot_ms"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(data: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        made(**data)


def test_a_language_model_has_objectives_of_its_own() -> None:
    model = made(models={"m": {"ttft_ms": 500, "tpot_ms": 50}}).models["m"]
    model.check_sequences()
    assert (model.ttft_s, model.tpot_s) == (0.5, 0.05)
    with pytest.raises(InvalidInput, match=r"ttft_ms: 500.* slo_ms"):
        model.check_rows()
    plain = made(models={"m": {}}).models["m"]
    plain.check_rows()
    assert (plain.slo_s, plain.ttft_s) == (0.05, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"slo_ms": 50}, "slo_ms: 50.* ttft_ms and tpot_ms"),
        ({"max_batch": 4}, "max_batch: 4"),
        ({"too_long": "error"}, "too_long: 'error'"),
        ({"empty": "error"}, "empty: 'error'"),
    ],
)
def test_and_not_those_of_other_models(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        made(models={"m": given}).models["m"].check_sequences()


def test_a_file_that_is_none_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a file that can be read"):
        read_settings(tmp_path / "none.toml", {})
    (tmp_path / "bad.toml").write_text("[models")
    with pytest.raises(InvalidInput, match="TOML"):
        read_settings(tmp_path / "bad.toml", {})


def test_adapters_are_named_once(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[models.llm]\nmodel = "smollm"\n[models.llm.adapters]\nsql = "adapters/sql"\n')
    assert read_settings(file, {}).models["llm"].adapters == {"sql": "adapters/sql"}
    keys = {"bot": {"sha256": digest_of("x"), "models": ["sql"]}}
    models = {"llm": {"model": "smollm", "adapters": {"sql": "a"}}}
    assert make_settings({"models": models, "keys": keys}).keys["bot"].models == ("sql",)
    for other, told in (({"sql": {}}, "llm.adapters"), ({"b": {"adapters": {"sql": "c"}}}, "b.adapters")):
        with pytest.raises(InvalidInput, match=f"{told}: 'sql'.*a name that no model and no other adapter has"):
            make_settings({"models": {**models, **other}})
    for wrong in ({"": "a"}, {"a": ""}, {"a\n": "b"}, {"a": 1}, ["a"]):
        with pytest.raises(InvalidInput, match=r"models\.m\.adapters"):
            make_settings({"models": {"m": {"adapters": wrong}}})
    with pytest.raises(InvalidInput, match=r"adapters: 'sql'.*minilm is not a language model"):
        make_settings({"models": {"minilm": {"adapters": {"sql": "a"}}}}).models["minilm"].check_rows()
