"""Generalised mean of the features weighted by generalized sum pooling."""

from sumpool.pooling.gsp import GSP


class GeMGSP(GSP):
    r"""GeM+GSP: generalised mean, with a learned power, of the raw features scaled by their GSP weights.

    .. math:: g = W v, \qquad v_c = \Bigl(\frac1n \sum_j \max(n\,p_j f_{jc}, 10^{-6})^q\Bigr)^{1/q}

    with the weights p of `GSP`, whose settings these are. The variant of the conventional protocol on ResNet-50.

    Gürbüz, Sener and Alatan, *Generalized sum pooling for metric learning*, ICCV 2023.
    """

    def __init__(
        self,
        in_features: int,
        dim: int | None = None,
        prototypes: int = 64,
        mass: float = 0.3,
        sharpness: float = 5.0,
        *,
        role: str = "foreground",
        memory: int = 1024,
        learn_mass: bool = False,
        learn_sharpness: bool = False,
    ) -> None:
        super().__init__(
            in_features, dim, prototypes, mass, sharpness, combine="gem", role=role, memory=memory,
            learn_mass=learn_mass, learn_sharpness=learn_sharpness,
        )  # fmt: skip
