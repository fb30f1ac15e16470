"""Studies: one file per figure or table of the texts."""

from sumpool.studies.base import Study
from sumpool.studies.ccp_ablations import ccp_ablations
from sumpool.studies.ccp_geometry import ccp_geometry
from sumpool.studies.cifar_collage import cifar_collage
from sumpool.studies.gap_analysis import gap_analysis
from sumpool.studies.glyph_collage import glyph_collage
from sumpool.studies.gradient_iterations import iterations
from sumpool.studies.gsp_ablations import gsp_ablations
from sumpool.studies.regularisers import regularisers
from sumpool.studies.tables import tables
from sumpool.studies.tokens import tokens
from sumpool.studies.toy import toy
from sumpool.studies.zero_shot_attributes import zero_shot_attributes

STUDIES: dict[str, Study] = {
    "toy": toy,
    "glyph-collage": glyph_collage,
    "cifar-collage": cifar_collage,
    "ccp-geometry": ccp_geometry,
    "ccp-ablations": ccp_ablations,
    "tokens": tokens,
    "zero-shot-attributes": zero_shot_attributes,
    "gap-analysis": gap_analysis,
    "iterations": iterations,
    "gsp-ablations": gsp_ablations,
    "regularisers": regularisers,
    "tables": tables,
}
