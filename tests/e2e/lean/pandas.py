"""Not installed with what servers and jobs need; Arrow would import it, a third of a second a process."""

raise ModuleNotFoundError("pandas is left out of the programs that tests start", name="pandas")
