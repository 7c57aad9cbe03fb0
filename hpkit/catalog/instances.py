"""Amazon EC2 instance types by their DMI product name: whole NVIDIA GPUs and nominal memory in GiB.

The sizes are those that AWS publishes (https://aws.amazon.com/ec2/instance-types/, accelerated computing), for types
that have whole GPUs. A type that is absent means that the catalogue knows nothing of it. A site overrides an entry, or
names what is not here, with [want] in its configuration. Python and not TOML, because each round of a hook reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

INSTANCES: Mapping[str, Mapping[str, int]] = {
    "p3.2xlarge": {"gpus": 1, "memory_gib": 61},
    "p3.8xlarge": {"gpus": 4, "memory_gib": 244},
    "p3.16xlarge": {"gpus": 8, "memory_gib": 488},
    "p3dn.24xlarge": {"gpus": 8, "memory_gib": 768},
    "p4d.24xlarge": {"gpus": 8, "memory_gib": 1152},
    "p4de.24xlarge": {"gpus": 8, "memory_gib": 1152},
    "p5.4xlarge": {"gpus": 1, "memory_gib": 256},
    "p5.48xlarge": {"gpus": 8, "memory_gib": 2048},
    "p5e.48xlarge": {"gpus": 8, "memory_gib": 2048},
    "p5en.48xlarge": {"gpus": 8, "memory_gib": 2048},
    "p6-b200.48xlarge": {"gpus": 8, "memory_gib": 2048},
    "p6-b300.48xlarge": {"gpus": 8, "memory_gib": 4096},
    "p6e-gb200.36xlarge": {"gpus": 4, "memory_gib": 960},
    "g4dn.xlarge": {"gpus": 1, "memory_gib": 16},
    "g4dn.12xlarge": {"gpus": 4, "memory_gib": 192},
    "g4dn.metal": {"gpus": 8, "memory_gib": 384},
    "g5.xlarge": {"gpus": 1, "memory_gib": 16},
    "g5.2xlarge": {"gpus": 1, "memory_gib": 32},
    "g5.4xlarge": {"gpus": 1, "memory_gib": 64},
    "g5.8xlarge": {"gpus": 1, "memory_gib": 128},
    "g5.12xlarge": {"gpus": 4, "memory_gib": 192},
    "g5.16xlarge": {"gpus": 1, "memory_gib": 256},
    "g5.24xlarge": {"gpus": 4, "memory_gib": 384},
    "g5.48xlarge": {"gpus": 8, "memory_gib": 768},
    "g6.12xlarge": {"gpus": 4, "memory_gib": 192},
    "g6.24xlarge": {"gpus": 4, "memory_gib": 384},
    "g6.48xlarge": {"gpus": 8, "memory_gib": 768},
    "g6e.12xlarge": {"gpus": 4, "memory_gib": 384},
    "g6e.24xlarge": {"gpus": 4, "memory_gib": 768},
    "g6e.48xlarge": {"gpus": 8, "memory_gib": 1536},
}
