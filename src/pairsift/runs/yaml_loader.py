"""The loader of YAML files of options."""

from __future__ import annotations

from typing import Any

import yaml


class UniqueKeyLoader(yaml.SafeLoader):
    """A loader that refuses repeated keys of a mapping. PyYAML itself silently keeps the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping as it is written, before others are merged into it.

        Raises:
            YAMLError: It has a key twice.
        """
        node = super().compose_mapping_node(anchor)
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1 and key[1] != "<<":
                raise yaml.YAMLError(f"{key[1]!r} is there twice in one mapping{node.start_mark}: leave one out")
        return node
