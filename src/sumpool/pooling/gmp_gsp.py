"""Max pooling added to generalized sum pooling."""

from sumpool.pooling.gsp import GSP


class GMPGSP(GSP):
    r"""GMP+GSP: the projected maximum of the raw features plus their generalized sum, through one projection.

    .. math:: g = W \max_j f_j + \sum_j p_j W f_j

    with the weights p of `GSP`, whose settings these are. The variant of the conventional protocol on BN-Inception.

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
            in_features, dim, prototypes, mass, sharpness, combine="max", role=role, memory=memory,
            learn_mass=learn_mass, learn_sharpness=learn_sharpness,
        )  # fmt: skip
