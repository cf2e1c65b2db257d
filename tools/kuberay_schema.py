"""Write the part of KubeRay's schema of a RayJob that deploy/kuberay.yaml uses.

    python tools/kuberay_schema.py ray.io_rayjobs.yaml

The argument is ray-operator/config/crd/bases/ray.io_rayjobs.yaml of
https://github.com/ray-project/kuberay (Apache License 2.0), which has 1.4 MB, most of them for
fields of pods that the file does not set. Their names are kept, so that a test finds wrong ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
OUT = ROOT / "tests" / "support" / "rayjob_schema.json"
KEPT = ("type", "enum", "required", "pattern", "x-kubernetes-int-or-string")


def reduced(schema: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    """Return a schema without what is below fields that no value has.

    Args:
        schema: A schema of OpenAPI, as Kubernetes restricts it.
        values: The values at this place of the document.
    """
    found = {name: schema[name] for name in KEPT if name in schema}
    if found.pop("x-kubernetes-int-or-string", False):
        return {"type": ["integer", "string"]}
    if "properties" in schema:
        found["properties"] = {}
        for name, part in schema["properties"].items():
            inner = [value[name] for value in values if name in value]
            found["properties"][name] = reduced(part, inner) if inner else {}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        inner = [part for value in values for part in value.values()]
        found["additionalProperties"] = reduced(schema["additionalProperties"], inner)
    if "items" in schema:
        inner = [part for value in values for part in value]
        found["items"] = reduced(schema["items"], inner)
    return found


def main() -> None:
    """Read the definition, and write the schema of version v1."""
    definition = yaml.safe_load(Path(sys.argv[1]).read_text())
    document = yaml.safe_load((ROOT / "deploy" / "kuberay.yaml").read_text())
    (version,) = [part for part in definition["spec"]["versions"] if part["name"] == "v1"]
    schema = reduced(version["schema"]["openAPIV3Schema"], [document])
    schema["properties"]["metadata"] = {"type": "object"}
    operator = definition["metadata"]["annotations"]["controller-gen.kubebuilder.io/version"]
    source = "RayJob v1 of KubeRay (Apache License 2.0), made by tools/kuberay_schema.py"
    schema = {"$comment": f"{source}; controller-gen {operator}", **schema}
    OUT.write_text(json.dumps(schema, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
