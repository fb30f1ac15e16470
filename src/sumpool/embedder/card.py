"""The model card: what the hub shows, and how to use the model."""

import json
from typing import Any

CARD = """---
library_name: sumpool
pipeline_tag: image-feature-extraction
tags:
- sumpool
- metric-learning
- image-retrieval
---

# {backbone} with {pooling} pooling, {dim}-dimensional embeddings

Image embeddings for retrieval, made with `sumpool`.

```python
from sumpool import Embedder

embedder = Embedder.load("this folder or repository")
vectors = embedder.embed_files(["a.jpg", "b.jpg"])   # (2, {dim})
```

| part | settings |
|---|---|
| backbone | `{backbone_settings}` |
| pooling | `{pooling_settings}` |
| normalisation | `{normalize}` |
| images | `{preprocessing}` |

Training data, intended use, limits and results: to be written by whoever trained the model.
"""


def model_card(config: dict[str, Any], dim: int) -> str:
    """The card of a model, as Markdown."""
    # The architecture of a foreign model is long and stands in config.json.
    backbone = {key: value for key, value in config["backbone"].items() if key != "architecture"}
    return CARD.format(
        backbone=backbone["name"],
        pooling=config["pooling"]["name"],
        dim=dim,
        backbone_settings=json.dumps(backbone),
        pooling_settings=json.dumps(config["pooling"]),
        normalize=config["normalize"],
        preprocessing=json.dumps(config["preprocessing"]),
    )
