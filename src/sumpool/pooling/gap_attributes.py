"""Average pooling with pseudo-attributes: the zero-shot loss without generalized sum pooling."""

from sumpool.pooling.gsp import GSP


class GAPAttributes(GSP):
    r"""GAP with pseudo-attributes: `GSP` at mass 1, the ablation that has the zero-shot loss but no selection.

    .. math:: g = \frac1n \sum_j W f_j, \qquad
              z_i = \frac1n \sum_j \operatorname{softmax}_i(-\varepsilon\, c_{ij})

    with the costs and prototypes of `GSP`. Every feature has weight 1/n; only the attributes know the prototypes.

    Gürbüz, Sener and Alatan, *Generalized sum pooling for metric learning*, ICCV 2023 (ablations).
    """

    def __init__(
        self,
        in_features: int,
        dim: int | None = None,
        prototypes: int = 64,
        sharpness: float = 5.0,
        *,
        memory: int = 1024,
        learn_sharpness: bool = False,
    ) -> None:
        super().__init__(
            in_features, dim, prototypes, 1.0, sharpness, memory=memory, learn_sharpness=learn_sharpness
        )  # fmt: skip
