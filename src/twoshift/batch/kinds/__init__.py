"""What a job's input can be: a file for each kind, behind the port in `kind`; `known` tells them apart."""
