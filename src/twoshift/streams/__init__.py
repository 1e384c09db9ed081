"""Models over streams: windows of rows that keep coming, each committed with the offset after it."""
