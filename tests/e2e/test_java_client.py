"""Java's own HTTP client, which offers HTTP/2 with every request that it sends first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from servers import Server
from user_models import written

pytestmark = pytest.mark.slow
MODEL = "Embed"
SOURCE = """
import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        String text = "a red fox ".repeat(Integer.parseInt(given[1]));
        String body = "{\\"model\\": \\"Embed\\", \\"input\\": \\"" + text + "\\"}";
        for (int turn = 0; turn < 3; turn++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(given[0] + "/v1/embeddings"))
                .expectContinue(turn == 2)
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
            HttpResponse<String> reply = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(reply.version() + " " + reply.statusCode());
        }
    }
}
"""


@pytest.mark.skipif(not (shutil.which("javac") and shutil.which("java")), reason="no Java here")
def test_javas_client_is_answered_over_http_1_1(tmp_path: Path) -> None:
    pytest.importorskip("httptools")
    (tmp_path / "Ask.java").write_text(SOURCE)
    subprocess.run(["javac", "Ask.java"], cwd=tmp_path, check=True, timeout=120)
    server = Server(tmp_path, f"{written(tmp_path)}:{MODEL}", "--slo-ms", "60000")
    try:
        for texts in ("1", "10000"):
            words = ["java", "-cp", str(tmp_path), "Ask", server.address, texts]
            ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert ended.stdout.split("\n")[:3] == ["HTTP_1_1 200"] * 3, ended.stdout + ended.stderr
    finally:
        server.end()
