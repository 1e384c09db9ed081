"""How rows become parts: a file for each format, behind the port in `sink`; `known` lists them."""
