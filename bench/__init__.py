"""The scoreboard: each module prints figures against their bars; `--json` for machines."""
