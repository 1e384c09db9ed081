"""What outlives a command: profiles for now; jobs, files, versions and the ledger later."""
