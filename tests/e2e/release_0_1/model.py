import numpy as np


class Model:
    def load(self):
        pass

    def prepare(self, rows):
        return {"y": np.array([2.0 * row["x"] for row in rows])}

    def predict(self, batch):
        return {"y": batch["y"]}
