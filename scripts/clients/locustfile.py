"""What each of locust's users does."""

from locust import HttpUser, constant, task


class Embedder(HttpUser):
    """Texts, one after the other."""

    wait_time = constant(0.1)

    @task
    def embed(self) -> None:
        """One text."""
        self.client.post("/v1/embeddings", json={"model": "minilm", "input": "a red fox"})
