"""Studies: one file per figure or table of the texts."""

from sumpool.studies.base import Study
from sumpool.studies.toy import toy

STUDIES: dict[str, Study] = {
    "toy": toy,
}
