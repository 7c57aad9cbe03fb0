"""One file per source of the machine: each reads it once per round and returns facts; none of them judges."""
