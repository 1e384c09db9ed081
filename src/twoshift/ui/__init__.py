"""The console: pages that a server shows in a browser."""
