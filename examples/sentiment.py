import numpy as np


class Sentiment:
    def load(self):  # called once per process
        self.good = {"good", "great", "love"}

    def prepare(self, rows):  # raw rows -> arrays; runs in threads, before the device
        return {"hits": np.array([sum(word in self.good for word in row["text"].lower().split()) for row in rows])}

    def predict(self, batch):  # arrays in, arrays out: one output row per input row
        return {"score": 1 - np.exp(-batch["hits"])}
