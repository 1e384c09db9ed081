import numpy as np


class Sentiment:
    def load(self):  # once in a process
        self.good = {"good", "great", "love"}

    def prepare(self, rows):  # rows as they come -> arrays; on threads, before the device
        return {"hits": np.array([sum(word in self.good for word in row["text"].lower().split()) for row in rows])}

    def predict(self, batch):  # arrays in, arrays out, in both shifts: a row out for each row in
        return {"score": 1 - np.exp(-batch["hits"])}
